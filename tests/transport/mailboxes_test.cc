// The wait of a thread beside the rank's own, without LibTorch.
#include "penstock/transport/mailbox.h"

#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::mailboxes_test {
namespace {

using namespace transport;
using namespace std::chrono_literals;

/// The watch of rank 0's thread, with what the test says about the others.
struct Watch final : PeerWatch {
  void wait_begins(WorldRank) override { ++waits; }
  void wait_ends() override {}
  void ask(WorldRank peer) override {
    asked = peer.value();
    if (on_ask) on_ask();
  }
  std::optional<PeerStatus> status(WorldRank rank) const override {
    const auto found = statuses.find(rank);
    return found == statuses.end() ? std::nullopt : std::optional(found->second);
  }
  bool status_is_delayed() const override { return false; }
  Contact contact(WorldRank) const override { return last; }

  std::map<WorldRank, PeerStatus> statuses;
  Contact last;
  std::function<void()> on_ask;
  std::atomic<int> waits{0}, asked{-1};
};

const Tag in_background{.traffic = Traffic::background, .step = 1};

TEST(Mailboxes, a_wait_in_the_background_ends_when_the_awaited_rank_gives_no_sign_of_life) {
  Mailboxes<int> mailboxes(WorldRank(0), {.deadline = 100ms});
  Watch watch;
  watch.last.unanswered_ns = now_ns();
  const std::string text = test::error_text<TransportError>(
      [&] { mailboxes.take(WorldRank(1), in_background, "the files of a checkpoint", watch); });
  EXPECT_TRUE(test::says(text, "rank 0 waits for the files of a checkpoint from rank 1", "(no sign of life for 0.1 s)"))
      << text;
  EXPECT_EQ(watch.asked, 1);
  EXPECT_EQ(watch.waits, 0) << "peers must see the wait of the rank's thread alone";
}

TEST(Mailboxes, a_wait_in_the_background_is_no_part_of_a_circle) {
  Mailboxes<int> mailboxes(WorldRank(0), {.deadline = 20ms});
  Watch watch;
  // The thread of rank 1 waits for that of rank 0, and has long made no progress.
  watch.statuses[WorldRank(1)].waits_for = WorldRank(0);
  watch.statuses[WorldRank(0)].waits_for = WorldRank(1);
  int checks = 0;
  watch.on_ask = [&] {
    if (++checks == 4) mailboxes.put(WorldRank(1), in_background, 7);
  };
  EXPECT_EQ(mailboxes.take(WorldRank(1), in_background, "the files of a checkpoint", watch), 7);
}

// The threads of two pipelines of one world.
TEST(Mailboxes, threads_in_the_background_wait_at_the_same_time) {
  Mailboxes<int> mailboxes(WorldRank(0), {});
  Tag of_other = in_background;
  of_other.pipeline = 1;
  Watch first, second;
  std::future<int> other;
  int checks = 0;
  first.on_ask = [&] {
    if (++checks == 1)
      other = std::async(std::launch::async, [&] {
        return mailboxes.take(WorldRank(1), of_other, "the files of another checkpoint", second);
      });
    if (checks != 2) return;
    // The other wait ends although this one goes on.
    mailboxes.cancel({1, 1, WorkKind::background}, "the pipeline ends");
    EXPECT_THROW(other.get(), StepCancelled);
    mailboxes.put(WorldRank(1), in_background, 7);
  };
  EXPECT_EQ(mailboxes.take(WorldRank(1), in_background, "the files of a checkpoint", first), 7);
}

TEST(Mailboxes, an_abort_ends_waits_in_the_background_that_begin_later) {
  Mailboxes<int> mailboxes(WorldRank(0), {});
  Watch watch;
  EXPECT_TRUE(mailboxes.abort("the disk is full"));
  EXPECT_THROW(mailboxes.take(WorldRank(1), in_background, "the files of a checkpoint", watch), WorldAborted);
}

}  // namespace
}  // namespace penstock::mailboxes_test
