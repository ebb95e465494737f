// Inquiries among ranks whose questions and answers are carried by the test, one after the other.
#include "penstock/transport/processes/peer_inquiry.h"

#include <array>
#include <deque>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "penstock/transport/processes/control_messages.h"

namespace penstock::test::peer_inquiry_test {
namespace {

using namespace transport;
using namespace processes;
using namespace control_messages;

/// Four ranks.
class Ranks {
 public:
  static constexpr int count = 4;

  PeerInquiry& operator[](int rank) { return inquiries_[static_cast<std::size_t>(rank)]; }
  Progress& progress(int rank) { return progress_[static_cast<std::size_t>(rank)]; }

  /// Begins an inquiry of rank 0 about rank 1 and delivers all that is sent; returns who asked whom.
  std::string inquire() {
    asked_.clear();
    (*this)[0].begin(WorldRank(1));
    while (!on_the_way_.empty()) deliver();
    return asked_;
  }
  /// Delivers the oldest buffer.
  void deliver() {
    auto [from, to, kind, buffer] = std::move(on_the_way_.front());
    on_the_way_.pop_front();
    if (kind == kind_question)
      (*this)[to].answer(WorldRank(from), buffer);
    else
      (*this)[to].take_answer(WorldRank(from), buffer);
  }

 private:
  struct Sent {
    int from, to, kind;
    WireBuffer buffer;
  };

  PeerInquiry make(int rank) {
    return {WorldRank(rank), count, progress(rank), [this, rank](WorldRank to, int kind, WireBuffer buffer) {
              if (kind == kind_question) asked_ += std::to_string(rank) + ">" + std::to_string(to.value()) + " ";
              on_the_way_.push_back({rank, to.value(), kind, std::move(buffer)});
            }};
  }

  std::array<Progress, count> progress_;
  std::deque<Sent> on_the_way_;
  std::string asked_;
  std::array<PeerInquiry, count> inquiries_{make(0), make(1), make(2), make(3)};
};

TEST(PeerInquiry, follows_the_chain_of_waits) {
  Ranks ranks;
  ranks.progress(1).report({"1RECV_F3", 12});
  ranks.progress(1).wait_begins(WorldRank(2));
  ranks.progress(2).report({"2F3", 12});
  EXPECT_EQ(ranks.inquire(), "0>1 0>2 ");
  const auto one = ranks[0].status(WorldRank(1)), two = ranks[0].status(WorldRank(2));
  ASSERT_TRUE(one && two);
  EXPECT_STREQ(one->position.instruction, "1RECV_F3");
  EXPECT_EQ(one->waits_for, WorldRank(2));
  EXPECT_STREQ(two->position.instruction, "2F3");
  EXPECT_EQ(two->position.step, 12);
  EXPECT_FALSE(two->waits_for);
  EXPECT_FALSE(ranks[0].status(WorldRank(3)));
  EXPECT_EQ(ranks[0].contact(WorldRank(1)).unanswered_ns, 0);
}

TEST(PeerInquiry, asks_each_rank_of_a_circle_once_and_itself_never) {
  Ranks ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.progress(rank).wait_begins(WorldRank((rank + 1) % 3));
  EXPECT_EQ(ranks.inquire(), "0>1 0>2 ");
  EXPECT_EQ(ranks[0].status(WorldRank(2))->waits_for, WorldRank(0));
}

TEST(PeerInquiry, an_answer_to_an_older_inquiry_is_news_and_asks_nobody) {
  Ranks ranks;
  ranks.progress(1).wait_begins(WorldRank(2));
  ranks[0].begin(WorldRank(1));
  ranks.deliver();  // the question, which is answered
  ranks[0].begin(WorldRank(3));
  ranks.deliver();
  EXPECT_EQ(ranks[0].status(WorldRank(1))->waits_for, WorldRank(2));
  EXPECT_EQ(ranks[0].contact(WorldRank(2)).unanswered_ns, 0);
  EXPECT_GT(ranks[0].contact(WorldRank(3)).unanswered_ns, 0);
}

TEST(PeerInquiry, a_message_is_a_sign_of_life_and_no_answer) {
  Ranks ranks;
  ranks[0].begin(WorldRank(1));
  const std::int64_t asked = ranks[0].contact(WorldRank(1)).unanswered_ns;
  ranks[0].heard_of(WorldRank(1), nullptr);
  const Contact contact = ranks[0].contact(WorldRank(1));
  EXPECT_GE(contact.unanswered_ns, asked);
  EXPECT_EQ(contact.unanswered_ns, contact.heard_ns);
  EXPECT_EQ(last_place_of(ranks[0].status(WorldRank(1)), contact), "");
  const Tag tag{.traffic = Traffic::forward, .step = 7, .from_stage = 1, .to_stage = 2, .micro_batch = 3};
  ranks[0].heard_of(WorldRank(1), &tag);
  EXPECT_EQ(last_place_of(ranks[0].status(WorldRank(1)), ranks[0].contact(WorldRank(1))),
            "heard of at 1SEND_F3 in step 7");
  ranks.deliver();
  ranks.deliver();
  EXPECT_EQ(last_place_of(ranks[0].status(WorldRank(1)), ranks[0].contact(WorldRank(1))), "at start");
}

}  // namespace
}  // namespace penstock::test::peer_inquiry_test
