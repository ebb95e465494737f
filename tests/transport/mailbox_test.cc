// The mailbox with integers for messages, without LibTorch; also runs under the thread sanitizer.
#include "penstock/transport/mailbox.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <latch>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "tests/base/error_text.h"
#include "tests/transport/run_world.h"

namespace penstock::mailbox_test {
namespace {

using namespace transport;
using namespace std::chrono_literals;
using test::run_world;
using test::try_world;

/// A world of threads as in open_threads, but with integers for messages.
struct IntegerWorld {
  struct Watch final : PeerWatch {
    Watch(IntegerWorld& all, int rank) : world(all), own(all.ranks[static_cast<std::size_t>(rank)]) {}
    void wait_begins(WorldRank peer) override { own.wait_begins(peer); }
    void wait_ends() override { own.wait_ends(); }
    void ask(WorldRank) override {
      if (world.on_ask) world.on_ask();
    }
    std::optional<PeerStatus> status(WorldRank rank) const override {
      if (world.on_status) world.on_status();
      return world.ranks[rank.index()].read();
    }
    bool status_is_delayed() const override { return false; }
    Contact contact(WorldRank rank) const override { return world.contacts[rank.index()]; }
    IntegerWorld& world;
    Progress& own;
  };

  IntegerWorld(int size, WaitPolicy policy) : ranks(static_cast<std::size_t>(size)), contacts(ranks.size()) {
    for (int rank = 0; rank < size; ++rank) {
      mailboxes.emplace_back(WorldRank(rank), policy);
      watches.emplace_back(*this, rank);
    }
  }
  void put(int from, int to, const Tag& tag, int value) {
    mailboxes[static_cast<std::size_t>(to)].put(WorldRank(from), tag, value);
  }
  int take(int rank, int from, const Tag& tag, std::string_view what = "a message") {
    const auto index = static_cast<std::size_t>(rank);
    return mailboxes[index].take(WorldRank(from), tag, what, watches[index]);
  }

  std::vector<Progress> ranks;
  std::vector<Contact> contacts;
  std::deque<Mailbox<int>> mailboxes;
  std::deque<Watch> watches;
  std::function<void()> on_ask;     // called by a waiting rank after each check of its peer
  std::function<void()> on_status;  // and during the check
};

Tag tag_of(int micro_batch) { return {.traffic = Traffic::forward, .step = 1, .micro_batch = micro_batch}; }

std::string failure_of(const std::function<void()>& action) {
  return test::error_text<std::exception>([&] { action(); });
}

TEST(Mailbox, finds_messages_by_rank_and_every_field_of_the_tag) {
  IntegerWorld world(3, {});
  const Tag base{1, Traffic::forward, 2, 3, 4, 5};
  std::vector<Tag> tags(8, base);
  tags[1].pipeline = 9;
  tags[2].traffic = Traffic::backward;
  tags[3].step = 9;
  tags[4].from_stage = 9;
  tags[5].to_stage = 9;
  tags[6].micro_batch = 9;
  tags[7].topic = Topic::state;
  for (int from = 1; from < 3; ++from)
    for (int i = 0; i < 8; ++i) world.put(from, 0, tags[static_cast<std::size_t>(i)], 10 * from + i);
  for (int i = 7; i >= 0; --i)
    for (int from = 1; from < 3; ++from)
      EXPECT_EQ(world.take(0, from, tags[static_cast<std::size_t>(i)]), 10 * from + i);
}

TEST(Mailbox, a_tag_may_be_reused_only_after_its_message_was_taken) {
  IntegerWorld world(1, {});
  world.put(0, 0, tag_of(7), 1);
  EXPECT_THROW(world.put(0, 0, tag_of(7), 2), InternalError);
  EXPECT_EQ(world.take(0, 0, tag_of(7)), 1);
  world.put(0, 0, tag_of(7), 3);
  EXPECT_EQ(world.take(0, 0, tag_of(7)), 3);
}

TEST(Mailbox, carries_payloads_that_can_only_be_moved) {
  IntegerWorld world(1, {});
  Mailbox<std::unique_ptr<int>> mailbox(WorldRank(0), {});
  mailbox.put(WorldRank(0), tag_of(0), std::make_unique<int>(5));
  EXPECT_EQ(*mailbox.take(WorldRank(0), tag_of(0), "it", world.watches[0]), 5);
}

class MailboxTraffic : public ::testing::TestWithParam<std::chrono::nanoseconds> {};

TEST_P(MailboxTraffic, every_message_finds_its_reader_in_any_order) {
  constexpr int ranks = 6, messages = 400;
  IntegerWorld world(ranks, {.deadline = 30s, .spin = GetParam()});
  run_world(ranks, [&](int rank) {
    std::vector<std::pair<int, int>> expected;  // peer, number
    for (int peer = 0; peer < ranks; ++peer)
      for (int i = 0; i < messages; ++i) expected.emplace_back(peer, i);
    std::mt19937 random(static_cast<unsigned>(rank));
    std::shuffle(expected.begin(), expected.end(), random);
    std::thread sender([&world, rank, expected] {
      for (const auto& [to, i] : expected) world.put(rank, to, tag_of(i), 100000 * rank + 1000 * to + i);
    });
    std::shuffle(expected.begin(), expected.end(), random);
    std::vector<std::string> wrong;
    for (const auto& [from, i] : expected)
      if (world.take(rank, from, tag_of(i)) != 100000 * from + 1000 * rank + i) wrong.push_back("!");
    sender.join();
    EXPECT_TRUE(wrong.empty());
  });
}

TEST_P(MailboxTraffic, abort_ends_every_wait_with_the_first_reason) {
  constexpr int ranks = 5;
  IntegerWorld world(ranks, {.deadline = 30s, .spin = GetParam()});
  std::latch about_to_wait(ranks);
  const auto result = try_world(ranks, [&](int rank) {
    about_to_wait.count_down();
    if (rank != 0) world.take(rank, 0, tag_of(0), "1RECV_F0");
    about_to_wait.wait();
    for (auto& mailbox : world.mailboxes) EXPECT_TRUE(mailbox.abort("the disk is full"));
    for (auto& mailbox : world.mailboxes) EXPECT_FALSE(mailbox.abort("a later reason"));
  });
  EXPECT_EQ(result.what(0), "");
  for (int rank = 1; rank < ranks; ++rank) {
    EXPECT_THROW(std::rethrow_exception(result.errors[static_cast<std::size_t>(rank)]), WorldAborted);
    EXPECT_EQ(result.what(rank), say("rank ", rank, " gave up waiting for 1RECV_F0: the disk is full"));
  }
  EXPECT_EQ(world.mailboxes[2].aborted(), "the disk is full");
  EXPECT_THROW(world.take(0, 0, tag_of(0)), WorldAborted);
  world.put(0, 0, tag_of(0), 1);  // dropped without an error
}

INSTANTIATE_TEST_SUITE_P(SpinOrSleep, MailboxTraffic, ::testing::Values(0ns, 50us),
                         [](const auto& spin) { return std::string(spin.param.count() > 0 ? "spin" : "sleep"); });

TEST(StallLimit, names_the_waiting_rank_the_message_and_the_peers_position) {
  IntegerWorld world(2, {.stall_limit = 80ms});
  world.ranks[0].report({"0F5"});
  const std::string text = failure_of([&] { world.take(1, 0, tag_of(5), "1RECV_F5"); });
  EXPECT_TRUE(text.starts_with("rank 1 waits for 1RECV_F5 from rank 0, which is at 0F5 since 0.")) << text;
  EXPECT_TRUE(text.ends_with(" s (no progress for 0.08 s, the stall limit)")) << text;
}

TEST(StallLimit, a_timeout_is_not_an_abort) {
  IntegerWorld world(2, {.stall_limit = 20ms});
  try {
    world.take(1, 0, tag_of(5));
    FAIL();
  } catch (const WorldAborted&) {
    FAIL();
  } catch (const TransportError&) {
  }
  world.put(0, 1, tag_of(6), 6);  // and the mailbox can still be used
  EXPECT_EQ(world.take(1, 0, tag_of(6)), 6);
}

/// A wait for `from` in a world of four that sends after 16 checks, at each of which rank 0 does something.
struct LongWait {
  const char* name;
  WaitPolicy policy;
  int from;
  void (*at_check)(Progress& of_rank_0);
};

class LongWaits : public ::testing::TestWithParam<LongWait> {};

INSTANTIATE_TEST_SUITE_P(
    Mailbox, LongWaits,
    ::testing::Values(
        LongWait{"progress", {.stall_limit = 80ms}, 0, [](Progress& own) { own.report({"0F1"}); }},
        LongWait{"progress_within_an_instruction", {.stall_limit = 80ms}, 0, [](Progress& own) { own.move(); }},
        LongWait{
            "progress_at_the_end_of_a_chain", {.stall_limit = 80ms}, 2, [](Progress& own) { own.report({"0F1"}); }},
        // As in a long layer or a hook: 16 checks are four deadlines.
        LongWait{"life_without_progress", {.deadline = 10ms}, 0, [](Progress&) {}}),
    [](const auto& wait) { return std::string(wait.param.name); });

TEST_P(LongWaits, end_with_their_message) {
  IntegerWorld world(4, GetParam().policy);
  world.ranks[0].report({"0F1"});
  world.ranks[2].wait_begins(WorldRank(1));
  world.ranks[1].wait_begins(WorldRank(0));
  int checks = 0;
  world.on_ask = [&] {
    GetParam().at_check(world.ranks[0]);
    if (++checks == 16) world.put(GetParam().from, 3, tag_of(0), 42);
  };
  EXPECT_EQ(world.take(3, GetParam().from, tag_of(0)), 42);
}

TEST(StallLimit, names_the_whole_chain_when_its_end_makes_no_progress) {
  IntegerWorld world(3, {.stall_limit = 40ms});
  world.ranks[1].report({"1RECV_F2"});
  world.ranks[1].wait_begins(WorldRank(0));
  world.ranks[0].report({"0F2"});
  const std::string text = failure_of([&] { world.take(2, 1, tag_of(2), "2RECV_F2"); });
  EXPECT_TRUE(text.starts_with("rank 2 waits for 2RECV_F2 from rank 1, which is at 1RECV_F2 since ")) << text;
  EXPECT_NE(text.find(" s, waiting for rank 0, which is at 0F2 since "), std::string::npos) << text;
}

TEST(Deadline, a_circle_of_waits_ends) {
  IntegerWorld world(3, {.deadline = 40ms});
  world.ranks[1].wait_begins(WorldRank(2));
  world.ranks[2].wait_begins(WorldRank(0));
  const std::string text = failure_of([&] { world.take(0, 1, tag_of(0)); });
  EXPECT_NE(text.find(", waiting for rank 1: a circle (no progress"), std::string::npos) << text;
}

TEST(Deadline, a_silent_rank_is_named_with_its_last_known_position) {
  // Anywhere in the chain. The last known position is old.
  IntegerWorld world(3, {.deadline = 40ms});
  world.ranks[1].wait_begins(WorldRank(0));
  world.ranks[0].report({"0F2", 7});
  world.on_ask = [&] {
    if (world.contacts[0].unanswered_ns == 0) world.contacts[0].unanswered_ns = now_ns();
  };
  const std::string text = failure_of([&] { world.take(2, 1, tag_of(2), "2RECV_F2"); });
  EXPECT_NE(text.find(", waiting for rank 0, which has not responded for 0.0 s, last at 0F2 in step 7 (no sign of "
                      "life for 0.04 s)"),
            std::string::npos)
      << text;
}

TEST(Deadline, an_answer_restarts_it) {
  IntegerWorld world(2, {.deadline = 400ms});
  int checks = 0;
  world.on_ask = [&] {
    Contact& contact = world.contacts[0];
    ++checks;
    if (checks % 3 == 0)
      contact.unanswered_ns = 0;
    else if (contact.unanswered_ns == 0)
      contact.unanswered_ns = now_ns();
    if (checks == 12) world.put(0, 1, tag_of(0), 42);
  };
  EXPECT_EQ(world.take(1, 0, tag_of(0)), 42);
}

TEST(Deadline, a_rank_that_has_left_sends_nothing) {
  IntegerWorld world(2, {.deadline = 20ms});
  world.ranks[0].report(end_position);
  EXPECT_EQ(failure_of([&] { world.take(1, 0, tag_of(0), "1RECV_F0"); }),
            "rank 1 waits for 1RECV_F0 from rank 0, which has left the world, and sends nothing any more");
}

/// What is known of every other rank, as the test sets it.
struct KnownPeers final : PeerWatch {
  void wait_begins(WorldRank) override {}
  void wait_ends() override {}
  void ask(WorldRank) override { ++questions; }
  std::optional<PeerStatus> status(WorldRank rank) const override {
    const auto other = others.find(rank);
    return other == others.end() ? known : other->second;
  }
  bool status_is_delayed() const override { return true; }
  Contact contact(WorldRank rank) const override { return rank == silent.value_or(rank) ? heard : Contact{}; }
  std::optional<PeerStatus> known;
  Contact heard;
  std::map<WorldRank, PeerStatus> others = {};     // of whom another status is known
  std::optional<WorldRank> silent = std::nullopt;  // `heard` is of this one alone; none: of all
  int questions = 0;
};

/// Rank 1 waits for rank 0, and the test sets the clock: what a busy machine does to the test's thread changes nothing.
struct TimedWait {
  explicit TimedWait(WaitPolicy given, const std::vector<AwaitedRank>& awaited = {{WorldRank(0)}})
      : policy(given), guard(WorldRank(1), awaited, policy, peers, begin) {}

  void check() { guard.check("1RECV_F0", now); }
  /// To the time of the next check, which is made.
  void goes_on() {
    now = guard.next_check_ns();
    check();
  }
  void goes_on_for(std::chrono::nanoseconds time) {
    for (const std::int64_t end = now + time.count(); guard.next_check_ns() <= end;) goes_on();
  }

  static constexpr std::int64_t begin = 1'000'000'000'000;
  std::int64_t now = begin;
  KnownPeers peers;
  WaitPolicy policy;
  WaitGuard guard;
};

TEST(Contact, its_newest_message_or_answer_says_where_a_rank_was) {
  Contact contact;
  EXPECT_EQ(last_place_of(std::nullopt, contact), "");
  contact.heard({.traffic = Traffic::control, .step = 9}, 10);
  contact.heard({.traffic = Traffic::tied_values, .step = 9}, 10);
  EXPECT_EQ(last_place_of(std::nullopt, contact), "");
  contact.heard({.traffic = Traffic::reduce, .step = 6}, 20);
  EXPECT_EQ(last_place_of(std::nullopt, contact), "heard of in step 6");
  contact.heard({.traffic = Traffic::forward, .step = 7, .from_stage = 1, .to_stage = 2, .micro_batch = 3}, 30);
  EXPECT_EQ(last_place_of(std::nullopt, contact), "heard of at 1SEND_F3 in step 7");
  contact.heard({.traffic = Traffic::backward, .step = 7, .from_stage = 0, .to_stage = 1, .micro_batch = 4}, 40);
  contact.heard({.traffic = Traffic::forward, .step = 6}, 50);  // overtaken
  EXPECT_EQ(last_place_of(std::nullopt, contact), "heard of at 1SEND_B4 in step 7");
  PeerStatus status{Position{"1B5", 7}, 0, 0, 39, std::nullopt};
  EXPECT_EQ(last_place_of(status, contact), "heard of at 1SEND_B4 in step 7");
  status.heard_ns = 41;
  EXPECT_EQ(last_place_of(status, contact), "at 1B5 in step 7");
  status.position = Position{};
  EXPECT_EQ(last_place_of(status, contact), "at start");
}

TEST(Deadline, does_not_count_time_in_which_this_process_was_stopped) {
  // A question is not answered before this process is stopped, for longer than the deadline; the answer waits for it.
  TimedWait wait({.deadline = 40ms});
  wait.goes_on_for(60ms);
  wait.peers.heard.unanswered_ns = wait.now;
  wait.peers.questions = 0;
  wait.now += 100'000'000;
  EXPECT_NO_THROW(wait.check());
  EXPECT_EQ(wait.peers.questions, 1);
  // Without an answer the next check fails.
  EXPECT_THROW(wait.goes_on(), TransportError);
}

TEST(Deadline, counts_from_when_this_rank_learns_that_the_other_has_left) {
  // The status arrives late and says that the rank left at the begin of the wait: its last message may come with it.
  TimedWait wait({.deadline = 40ms});
  wait.goes_on_for(80ms);
  wait.peers.known = PeerStatus{end_position, wait.begin, wait.begin, wait.now, std::nullopt};
  EXPECT_NO_THROW(wait.goes_on());
  const std::int64_t learned = wait.now;
  EXPECT_THROW(
      for (;;) {
        wait.peers.known->heard_ns = wait.now;
        wait.goes_on();
      },
      TransportError);
  EXPECT_EQ(wait.now - learned, std::chrono::nanoseconds(wait.policy.deadline).count());
}

/// What a wait for the device of rank 1 watches: rank 0 has still to send to it.
const std::vector<AwaitedRank> behind_device{{WorldRank(0)}, {WorldRank(2), false}, {WorldRank(3), false}};

TEST(Deadline, any_of_several_ranks_may_be_the_silent_one) {
  TimedWait wait({.deadline = 40ms}, behind_device);
  wait.peers.silent = WorldRank(3);
  wait.goes_on_for(60ms);
  EXPECT_EQ(wait.peers.questions % 3, 0);
  wait.peers.heard.unanswered_ns = wait.now;
  EXPECT_EQ(test::error_text<TransportError>([&] { wait.goes_on_for(60ms); }),
            "rank 1 waits for 1RECV_F0 from rank 3, which has never answered (no sign of life for 0.04 s)");
}

TEST(Deadline, of_several_ranks_those_may_leave_that_have_nothing_to_send) {
  TimedWait wait({.deadline = 40ms}, behind_device);
  const auto left = [&] { return PeerStatus{end_position, wait.begin, wait.begin, wait.now, std::nullopt}; };
  wait.peers.others = {{WorldRank(2), left()}, {WorldRank(3), left()}};
  EXPECT_NO_THROW(wait.goes_on_for(10s));
  wait.peers.others[WorldRank(0)] = left();
  EXPECT_THROW(wait.goes_on_for(80ms), TransportError);
}

TEST(StallLimit, of_several_ranks_one_may_make_progress) {
  TimedWait wait({.stall_limit = 1s}, behind_device);
  wait.peers.known = PeerStatus{Position{}, wait.begin, wait.begin, wait.begin, std::nullopt};
  const auto moves = [&] { return PeerStatus{Position{}, wait.begin, wait.now, wait.now, std::nullopt}; };
  for (int i = 0; i < 10; ++i) {
    wait.peers.others[WorldRank(2)] = moves();
    EXPECT_NO_THROW(wait.goes_on_for(500ms));
  }
  EXPECT_THROW(wait.goes_on_for(2s), TransportError);
}

TEST(Deadline, a_stall_is_found_one_period_after_its_limit) {
  // So the last question but one is asked at the limit.
  TimedWait wait({.stall_limit = 1s});
  wait.peers.known = PeerStatus{Position{}, wait.begin, wait.begin, wait.begin, std::nullopt};
  std::vector<std::int64_t> checks;
  EXPECT_THROW(
      for (;;) {
        checks.push_back(wait.guard.next_check_ns());
        wait.peers.known->heard_ns = wait.now;
        wait.goes_on();
      },
      TransportError);
  ASSERT_GE(checks.size(), 2u);
  EXPECT_EQ(checks[checks.size() - 2], wait.begin + std::chrono::nanoseconds(*wait.policy.stall_limit).count());
  EXPECT_EQ(checks.back() - checks[checks.size() - 2], wait.policy.poll_every().count());
}

TEST(Deadline, a_message_that_arrives_while_the_wait_is_given_up_is_taken) {
  IntegerWorld world(2, {.stall_limit = 20ms});
  const std::int64_t begin = now_ns();
  bool is_sent = false;
  world.on_status = [&] {
    if (!is_sent && now_ns() - begin >= std::chrono::nanoseconds(20ms).count()) {
      is_sent = true;
      world.put(0, 1, tag_of(0), 42);
    }
  };
  EXPECT_EQ(world.take(1, 0, tag_of(0)), 42);
}

Tag tag_in_step(std::uint64_t step) { return {.traffic = Traffic::forward, .step = step}; }

TEST(Cancel, ends_the_waits_of_one_step_alone) {
  IntegerWorld world(2, {});
  world.put(0, 1, tag_in_step(4), 4);
  world.put(0, 1, tag_in_step(5), 5);
  Tag gathering = tag_in_step(5);
  gathering.traffic = Traffic::control;  // whose Tag::step does not count steps
  world.put(0, 1, gathering, 50);
  world.on_ask = [&] { world.mailboxes[1].cancel({0, 5}, "the input is too wide"); };
  EXPECT_EQ(world.take(1, 0, tag_in_step(5)), 5);
  const std::string text = failure_of([&] { world.take(1, 0, tag_in_step(5), "1RECV_F1"); });
  EXPECT_EQ(text, "the input is too wide");
  world.put(0, 1, tag_in_step(5), 6);  // late: dropped
  EXPECT_THROW(world.take(1, 0, tag_in_step(5)), StepCancelled);
  EXPECT_EQ(world.take(1, 0, tag_in_step(4)), 4);
  EXPECT_EQ(world.take(1, 0, gathering), 50);
  world.put(0, 1, tag_in_step(6), 6);
  EXPECT_EQ(world.take(1, 0, tag_in_step(6)), 6);
  EXPECT_FALSE(world.mailboxes[1].cancel({0, 5}, "a later reason"));
}

TEST(Deadline, must_be_longer_than_zero) { EXPECT_THROW(Mailbox<int>(WorldRank(0), {.deadline = 0ns}), ConfigError); }

TEST(Progress, is_read_consistently_while_it_is_written) {
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
  // Until both have run concurrently for a while, or a time limit where there is no second core.
  for (int reads = 0; changes < 20000 && reads < 1'000'000; ++reads) {
    const std::string instruction = progress.read().position.instruction;
    torn += instruction != lengths[0] && instruction != lengths[1];
    changes += std::exchange(last, instruction) != instruction;
  }
  done = true;
  writer.join();
  EXPECT_EQ(torn, 0);
}

TEST(Progress, the_end_of_a_wait_is_progress) {
  Progress progress;
  progress.wait_begins(WorldRank(1));
  const PeerStatus waiting = progress.read();
  EXPECT_EQ(waiting.waits_for, WorldRank(1));
  while (now_ns() == waiting.heard_ns) {
  }
  progress.wait_ends();
  EXPECT_EQ(progress.read().waits_for, std::nullopt);
  EXPECT_GT(progress.read().moved_ns, waiting.heard_ns);
}

TEST(Chain, describes_stale_and_missing_answers) {
  KnownPeers watch;
  const std::int64_t ago = now_ns() - 5'000'000'000;
  watch.others.emplace(WorldRank(1), PeerStatus{{"1F3"}, ago, ago, ago, WorldRank(0)});
  EXPECT_EQ(WaitChain(watch, WorldRank(1)).text(1s),
            "rank 1, which has not responded for 5.0 s, last at 1F3, waiting for rank 0, which has never answered");
  EXPECT_EQ(WaitChain(watch, WorldRank(0)).moved_ns(), 0);
}

}  // namespace
}  // namespace penstock::mailbox_test
