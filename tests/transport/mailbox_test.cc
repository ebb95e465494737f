// The mailbox with integers for messages: runs under TSAN, without LibTorch.
#include "penstock/transport/mailbox.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <latch>
#include <memory>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "tests/transport/run_world.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;
using test::run_world;
using test::try_world;

/// A world of threads as open_threads makes it, but of integers.
struct Board {
  struct Watch final : PeerWatch {
    Watch(Board& all, int rank) : board(all), own(all.ranks[static_cast<std::size_t>(rank)]) {}
    void wait_begins(WorldRank peer) override { own.wait_begins(peer); }
    void wait_ends() override { own.wait_ends(); }
    void ask(WorldRank) override {
      if (board.on_ask) board.on_ask();
    }
    std::optional<PeerStatus> status(WorldRank rank) const override { return board.ranks[rank.index()].read(); }
    bool hears_late() const override { return false; }
    Contact contact(WorldRank rank) const override { return board.contacts[rank.index()]; }
    Board& board;
    Progress& own;
  };

  Board(int size, WaitPolicy patience) : ranks(static_cast<std::size_t>(size)), contacts(ranks.size()) {
    for (int rank = 0; rank < size; ++rank) {
      mailboxes.emplace_back(WorldRank(rank), patience);
      watches.emplace_back(*this, rank);
    }
  }
  void put(int from, int to, const Tag& tag, int value) {
    mailboxes[static_cast<std::size_t>(to)].put(WorldRank(from), tag, value);
  }
  int take(int rank, int from, const Tag& tag, std::string_view what = "a letter") {
    const auto index = static_cast<std::size_t>(rank);
    return mailboxes[index].take(WorldRank(from), tag, what, watches[index]);
  }

  std::vector<Progress> ranks;
  std::vector<Contact> contacts;
  std::deque<Mailbox<int>> mailboxes;
  std::deque<Watch> watches;
  std::function<void()> on_ask;  // called by a waiting rank whenever it looks after its peer
};

Tag tag_of(int micro_batch) { return {.traffic = Traffic::forward, .step = 1, .micro_batch = micro_batch}; }

std::string failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no failure";
}

TEST(Mailbox, FindsMessagesByRankAndEveryFieldOfTheTag) {
  Board board(3, {});
  const Tag base{1, Traffic::forward, 2, 3, 4, 5};
  std::vector<Tag> tags(7, base);
  tags[1].pipeline = 9;
  tags[2].traffic = Traffic::backward;
  tags[3].step = 9;
  tags[4].from_stage = 9;
  tags[5].to_stage = 9;
  tags[6].micro_batch = 9;
  for (int from = 1; from < 3; ++from)
    for (int i = 0; i < 7; ++i) board.put(from, 0, tags[static_cast<std::size_t>(i)], 10 * from + i);
  for (int i = 6; i >= 0; --i)
    for (int from = 1; from < 3; ++from)
      EXPECT_EQ(board.take(0, from, tags[static_cast<std::size_t>(i)]), 10 * from + i);
}

TEST(Mailbox, ATagMayBeUsedAgainOnceItsMessageIsTakenButNotBefore) {
  Board board(1, {});
  board.put(0, 0, tag_of(7), 1);
  EXPECT_THROW(board.put(0, 0, tag_of(7), 2), InternalError);
  EXPECT_EQ(board.take(0, 0, tag_of(7)), 1);
  board.put(0, 0, tag_of(7), 3);
  EXPECT_EQ(board.take(0, 0, tag_of(7)), 3);
}

TEST(Mailbox, CarriesPayloadsThatCanOnlyBeMoved) {
  Board board(1, {});
  Mailbox<std::unique_ptr<int>> mailbox(WorldRank(0), {});
  mailbox.put(WorldRank(0), tag_of(0), std::make_unique<int>(5));
  EXPECT_EQ(*mailbox.take(WorldRank(0), tag_of(0), "it", board.watches[0]), 5);
}

class MailboxTraffic : public ::testing::TestWithParam<std::chrono::nanoseconds> {};

TEST_P(MailboxTraffic, EveryMessageFindsItsReaderInWhateverOrder) {
  constexpr int ranks = 6, messages = 400;
  Board board(ranks, {.deadline = 30s, .spin = GetParam()});
  run_world(ranks, [&](int rank) {
    std::vector<std::pair<int, int>> letters;  // peer, number
    for (int peer = 0; peer < ranks; ++peer)
      for (int i = 0; i < messages; ++i) letters.emplace_back(peer, i);
    std::mt19937 random(static_cast<unsigned>(rank));
    std::shuffle(letters.begin(), letters.end(), random);
    std::thread sender([&board, rank, letters] {
      for (const auto& [to, i] : letters) board.put(rank, to, tag_of(i), 100000 * rank + 1000 * to + i);
    });
    std::shuffle(letters.begin(), letters.end(), random);
    std::vector<std::string> wrong;
    for (const auto& [from, i] : letters)
      if (board.take(rank, from, tag_of(i)) != 100000 * from + 1000 * rank + i) wrong.push_back("!");
    sender.join();
    EXPECT_TRUE(wrong.empty());
  });
}

TEST_P(MailboxTraffic, AbortEndsEveryWaitWithTheFirstReason) {
  constexpr int ranks = 5;
  Board board(ranks, {.deadline = 30s, .spin = GetParam()});
  std::latch about_to_wait(ranks);
  const auto result = try_world(ranks, [&](int rank) {
    about_to_wait.count_down();
    if (rank != 0) board.take(rank, 0, tag_of(0), "1RECV_F0");
    about_to_wait.wait();
    for (auto& mailbox : board.mailboxes) EXPECT_TRUE(mailbox.abort("the disk is full"));
    for (auto& mailbox : board.mailboxes) EXPECT_FALSE(mailbox.abort("a later reason"));
  });
  EXPECT_EQ(result.what(0), "");
  for (int rank = 1; rank < ranks; ++rank) {
    EXPECT_THROW(std::rethrow_exception(result.errors[static_cast<std::size_t>(rank)]), WorldAborted);
    EXPECT_EQ(result.what(rank), say("rank ", rank, " gave up waiting for 1RECV_F0: the disk is full"));
  }
  EXPECT_EQ(board.mailboxes[2].aborted(), "the disk is full");
  EXPECT_THROW(board.take(0, 0, tag_of(0)), WorldAborted);
  board.put(0, 0, tag_of(0), 1);  // dropped in silence
}

INSTANTIATE_TEST_SUITE_P(SpinOrSleep, MailboxTraffic, ::testing::Values(0ns, 50us),
                         [](const auto& spin) { return std::string(spin.param.count() > 0 ? "spin" : "sleep"); });

// A made clock: nothing here depends on how fast this machine is.
TEST(AdaptiveSpin, SpinsWhileRoundsComeBackInTime) {
  AdaptiveSpin validate(2ms);
  for (std::int64_t now = 0; now < 1'000'000'000; now += 5'000'000) {
    EXPECT_EQ(validate.allowed_ns(now), 2'000'000);
    EXPECT_TRUE(validate.goes_on(now + 1000, 1000));
    validate.ended(400'000, true);
  }
}

TEST(AdaptiveSpin, SleepsAtOnceAfterALateRoundAndLongerEachTime) {
  AdaptiveSpin validate(2ms);
  std::int64_t now = 1'000'000'000, last = 0;
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(validate.allowed_ns(now), 2'000'000) << "it tries again";
    EXPECT_FALSE(validate.goes_on(now, 3'000'000)) << "somebody else's time slice";
    validate.ended(3'000'000, i % 2 == 0);
    const std::int64_t begin = now;
    while (validate.allowed_ns(now) == 0) now += 1'000'000;
    EXPECT_GE(now - begin, last);
    EXPECT_LE(now - begin, AdaptiveSpin::longest_rest_ns + 1'000'000);
    last = now - begin;
  }
  EXPECT_GE(last, AdaptiveSpin::longest_rest_ns);
  for (int i = 0; i < 100; ++i) validate.ended(100'000, true);  // the others are gone
  EXPECT_FALSE(validate.goes_on(now, 3'000'000));
  EXPECT_EQ(validate.allowed_ns(now + AdaptiveSpin::shortest_rest_ns), 2'000'000)
      << "a single late round is soon forgotten";
}

TEST(AdaptiveSpin, SpinsSeldomWhereEveryWaitOutlastsIt) {
  AdaptiveSpin validate(2ms);
  int spins = 0;
  for (int wait = 0; wait < 1600; ++wait)
    if (validate.allowed_ns(wait) > 0) {
      ++spins;
      validate.ended(2'000'000, false);
    }
  EXPECT_GE(spins, 90);
  EXPECT_LE(spins, 130);
  while (validate.allowed_ns(0) == 0) continue;
  validate.ended(500'000, true);
  EXPECT_EQ(validate.allowed_ns(0), 2'000'000) << "waits are short again";
}

TEST(AdaptiveSpin, MayBeFixed) {
  AdaptiveSpin never(0ns), always(2ms, false);
  EXPECT_EQ(never.allowed_ns(1), 0);
  EXPECT_TRUE(always.goes_on(1, 1'000'000'000));
  EXPECT_EQ(always.allowed_ns(1), 2'000'000);
}

TEST(StallLimit, NamesWhoWaitsForWhatAndWhereThePeerStandsStill) {
  Board board(2, {.stall_limit = 80ms});
  board.ranks[0].report({"0F5"});
  const std::string text = failure_of([&] { board.take(1, 0, tag_of(5), "1RECV_F5"); });
  EXPECT_TRUE(text.starts_with("rank 1 waits for 1RECV_F5 from rank 0, which is at 0F5 since 0.")) << text;
  EXPECT_TRUE(text.ends_with(" s (no progress for 0.08 s, the stall limit)")) << text;
}

TEST(StallLimit, ATimeoutIsNotAnAbort) {
  Board board(2, {.stall_limit = 20ms});
  try {
    board.take(1, 0, tag_of(5));
    FAIL();
  } catch (const WorldAborted&) {
    FAIL();
  } catch (const TransportError&) {
  }
  board.put(0, 1, tag_of(6), 6);  // and the mailbox can still be used
  EXPECT_EQ(board.take(1, 0, tag_of(6)), 6);
}

TEST(StallLimit, StartsAnewWheneverThePeerGetsOn) {
  // The peer gets on each time the waiting rank looks, and sends after four limits' worth of looks.
  Board board(2, {.stall_limit = 80ms});
  int looks = 0;
  board.on_ask = [&] {
    board.ranks[0].report({"0F1"});
    if (++looks == 16) board.put(0, 1, tag_of(0), 42);
  };
  EXPECT_EQ(board.take(1, 0, tag_of(0)), 42);
}

TEST(StallLimit, ProgressWithinAnInstructionCounts) {
  Board board(2, {.stall_limit = 80ms});
  int looks = 0;
  board.on_ask = [&] {
    board.ranks[0].move();
    if (++looks == 16) board.put(0, 1, tag_of(0), 42);
  };
  EXPECT_EQ(board.take(1, 0, tag_of(0)), 42);
}

TEST(StallLimit, IsPatientWhileThePeerWaitsForOneThatGetsOn) {
  // Rank 3 waits for 2, which waits for 1, which waits for 0; only rank 0 moves.
  Board board(4, {.stall_limit = 80ms});
  board.ranks[2].wait_begins(WorldRank(1));
  board.ranks[1].wait_begins(WorldRank(0));
  int looks = 0;
  board.on_ask = [&] {
    board.ranks[0].report({"0F1"});
    if (++looks == 16) board.put(2, 3, tag_of(0), 42);
  };
  EXPECT_EQ(board.take(3, 2, tag_of(0)), 42);
}

TEST(StallLimit, NamesTheWholeChainWhenItsEndStandsStill) {
  Board board(3, {.stall_limit = 40ms});
  board.ranks[1].report({"1RECV_F2"});
  board.ranks[1].wait_begins(WorldRank(0));
  board.ranks[0].report({"0F2"});
  const std::string text = failure_of([&] { board.take(2, 1, tag_of(2), "2RECV_F2"); });
  EXPECT_TRUE(text.starts_with("rank 2 waits for 2RECV_F2 from rank 1, which is at 1RECV_F2 since ")) << text;
  EXPECT_NE(text.find(" s, waiting for rank 0, which is at 0F2 since "), std::string::npos) << text;
}

TEST(Deadline, ACircleOfWaitsEnds) {
  Board board(3, {.deadline = 40ms});
  board.ranks[1].wait_begins(WorldRank(2));
  board.ranks[2].wait_begins(WorldRank(0));
  const std::string text = failure_of([&] { board.take(0, 1, tag_of(0)); });
  EXPECT_NE(text.find(", waiting for rank 1: a circle (no progress"), std::string::npos) << text;
}

TEST(Deadline, ALivePeerMayTakeAsLongAsItLikes) {
  // It is at one instruction all the time, as in a long layer or a hook, and lives.
  Board board(2, {.deadline = 10ms});
  board.ranks[0].report({"0F1"});
  int looks = 0;
  board.on_ask = [&] {
    if (++looks == 20) board.put(0, 1, tag_of(0), 42);  // a look each quarter of a deadline
  };
  EXPECT_EQ(board.take(1, 0, tag_of(0)), 42);
}

TEST(Deadline, ASilentRankIsNamedWithWhatIsKnownOfIt) {
  // Anywhere in the chain. What is known of it is old.
  Board board(3, {.deadline = 40ms});
  board.ranks[1].wait_begins(WorldRank(0));
  board.ranks[0].report({"0F2", 7});
  board.on_ask = [&] {
    if (board.contacts[0].unanswered_ns == 0) board.contacts[0].unanswered_ns = steady_now_ns();
  };
  const std::string text = failure_of([&] { board.take(2, 1, tag_of(2), "2RECV_F2"); });
  EXPECT_NE(text.find(", waiting for rank 0, which has given no answer since 0.0 s, last at 0F2 in step 7 (no sign of "
                      "life for 0.04 s)"),
            std::string::npos)
      << text;
}

TEST(Deadline, AnAnswerInBetweenStartsItAnew) {
  Board board(2, {.deadline = 400ms});
  int looks = 0;
  board.on_ask = [&] {
    Contact& contact = board.contacts[0];
    ++looks;
    if (looks % 3 == 0)
      contact.unanswered_ns = 0;
    else if (contact.unanswered_ns == 0)
      contact.unanswered_ns = steady_now_ns();
    if (looks == 12) board.put(0, 1, tag_of(0), 42);
  };
  EXPECT_EQ(board.take(1, 0, tag_of(0)), 42);
}

TEST(Deadline, ARankThatHasLeftSendsNothing) {
  Board board(2, {.deadline = 20ms});
  board.ranks[0].report(end_position);
  EXPECT_EQ(failure_of([&] { board.take(1, 0, tag_of(0), "1RECV_F0"); }),
            "rank 1 waits for 1RECV_F0 from rank 0, which has left the world, and sends nothing any more");
}

Tag tag_in_step(std::uint64_t step) { return {.traffic = Traffic::forward, .step = step}; }

TEST(Cancel, EndsTheWaitsOfOneStepAlone) {
  Board board(2, {});
  board.put(0, 1, tag_in_step(4), 4);
  board.put(0, 1, tag_in_step(5), 5);
  Tag gathering = tag_in_step(5);
  gathering.traffic = Traffic::control;  // its step counts something else
  board.put(0, 1, gathering, 50);
  board.on_ask = [&] { board.mailboxes[1].cancel({0, 5}, "the input is too wide"); };
  EXPECT_EQ(board.take(1, 0, tag_in_step(5)), 5);
  const std::string text = failure_of([&] { board.take(1, 0, tag_in_step(5), "1RECV_F1"); });
  EXPECT_EQ(text, "the input is too wide");
  board.put(0, 1, tag_in_step(5), 6);  // late: dropped
  EXPECT_THROW(board.take(1, 0, tag_in_step(5)), StepCancelled);
  EXPECT_EQ(board.take(1, 0, tag_in_step(4)), 4);
  EXPECT_EQ(board.take(1, 0, gathering), 50);
  board.put(0, 1, tag_in_step(6), 6);
  EXPECT_EQ(board.take(1, 0, tag_in_step(6)), 6);
  EXPECT_FALSE(board.mailboxes[1].cancel({0, 5}, "a later reason"));
}

TEST(Deadline, MustBeLongerThanZero) { EXPECT_THROW(Mailbox<int>(WorldRank(0), {.deadline = 0ns}), ConfigError); }

TEST(Progress, IsReadWholeWhileItIsWritten) {
  const std::string lengths[] = {"a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
  Progress progress;
  progress.report({"a"});
  std::atomic<bool> done = false;
  std::thread writer([&] {
    while (!done)
      for (const auto& instruction : {Position{"a"}, Position{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}})
        progress.report(instruction);
  });
  int torn = 0, changes = 0;
  std::string last;
  // Until both have run side by side for a while, or there is no second core.
  for (int reads = 0; changes < 20000 && reads < 1'000'000; ++reads) {
    const std::string instruction = progress.read().position.instruction;
    torn += instruction != lengths[0] && instruction != lengths[1];
    changes += std::exchange(last, instruction) != instruction;
  }
  done = true;
  writer.join();
  EXPECT_EQ(torn, 0);
}

TEST(Chain, TellsStaleAndMissingNewsAsSuch) {
  struct Fixed final : PeerWatch {
    void wait_begins(WorldRank) override {}
    void wait_ends() override {}
    void ask(WorldRank) override {}
    bool hears_late() const override { return true; }
    std::optional<PeerStatus> status(WorldRank rank) const override {
      if (rank == WorldRank(0)) return std::nullopt;
      const std::int64_t ago = steady_now_ns() - 5'000'000'000;
      return PeerStatus{{"1F3"}, ago, ago, ago, WorldRank(0)};
    }
  } watch;
  EXPECT_EQ(WaitChain(watch, WorldRank(1)).text(1s),
            "rank 1, which has given no answer since 5.0 s, last at 1F3, waiting for rank 0, which has never answered");
  EXPECT_EQ(WaitChain(watch, WorldRank(0)).moved_ns(), 0);
}

}  // namespace
}  // namespace penstock
