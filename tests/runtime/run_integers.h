// Runs a lowered schedule on the executor with integers: all ranks interleaved in one thread, or with a thread per rank
// and random delays. For tests.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "penstock/base/clock.h"
#include "penstock/rank/executor.h"
#include "penstock/schedule/schedule.h"
#include "penstock/trace/check_order.h"
#include "penstock/trace/chrome.h"
#include "penstock/transport/mailbox.h"
#include "tests/runtime/integer_handler.h"
#include "tests/transport/run_world.h"

namespace penstock {

/// Expects the results of all ranks to equal the plain loop's, and the live activations to equal validate()'s count.
template <class Handler>
void expect_like_plain_loop(const Schedule& schedule, const Validation& validation,
                            const std::vector<Handler>& handlers) {
  StepValues values;
  for (std::size_t rank = 0; rank < handlers.size(); ++rank) {
    values.add(handlers[rank].values());
    EXPECT_EQ(handlers[rank].peak(), validation.peak_activations[rank]) << "rank " << rank;
    EXPECT_EQ(handlers[rank].left_over(), 0u) << "rank " << rank;
  }
  const StepValues expected = plain_loop(schedule);
  EXPECT_EQ(values.outputs, expected.outputs);
  EXPECT_EQ(values.input_gradients, expected.input_gradients);
  EXPECT_EQ(values.weights, expected.weights);
  EXPECT_EQ(values.updates, expected.updates);
}

inline std::vector<rank::Program> programs_of(const Schedule& schedule) {
  const Dependencies dependencies(schedule, chain(schedule.stage_count()));
  std::vector<rank::Program> programs;
  for (const Order& order : schedule.orders) programs.emplace_back(order, dependencies);
  return programs;
}

/// All messages of a world of one thread.
struct SharedPost {
  using Messages = std::unordered_map<Tag, Value>;
  Messages* messages;

  void begin(const Instruction&) {}
  void put(Rank, const Tag& tag, Value value) {
    require<InternalError>(messages->emplace(tag, value).second, "a message was sent twice");
  }
  Value take(Rank, const Tag& tag, const Instruction&) { return messages->extract(tag).mapped(); }
};

/// One thread; a rank runs until it would wait, then the next one runs.
inline void run_interleaved(const Schedule& schedule) {
  const Validation validation = validate(schedule);
  ASSERT_TRUE(validation.ok) << validation.reason;
  using Handler = IntegerHandler<SharedPost>;
  const std::vector<rank::Program> programs = programs_of(schedule);
  SharedPost::Messages messages;
  std::vector<Handler> handlers;
  for (const int bound : validation.peak_activations) handlers.emplace_back(SharedPost{&messages}, schedule, bound);
  Recorder recorder(1);
  recorder.begin_step(0);
  std::int64_t begin = now_ns();

  const auto has_arrived = [&](const rank::Program& program, const rank::Program::Action& action) {
    for (std::uint32_t i = action.first_receive; i < action.end_receive; ++i)
      if (!messages.contains(Handler::tag_of(program.receive(i)))) return false;
    return true;
  };
  std::vector<std::size_t> at(programs.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < programs.size(); ++rank)
      for (const auto& actions = programs[rank].actions();
           at[rank] < actions.size() && has_arrived(programs[rank], actions[at[rank]]); ++at[rank]) {
        rank::execute_action(programs[rank], actions[at[rank]], handlers[rank], recorder, begin);
        moved = true;
      }
  }
  for (std::size_t rank = 0; rank < programs.size(); ++rank)
    ASSERT_EQ(at[rank], programs[rank].actions().size()) << "rank " << rank << " did not complete";
  expect_like_plain_loop(schedule, validation, handlers);
  EXPECT_TRUE(messages.empty());
}

/// The mailboxes of a world of threads, and the position of each rank.
struct IntegerWorld {
  explicit IntegerWorld(int ranks) : progress(static_cast<std::size_t>(ranks)) {
    for (int r = 0; r < ranks; ++r)
      mailboxes.push_back(std::make_unique<transport::Mailbox<Value>>(
          WorldRank(r), transport::WaitPolicy{std::chrono::seconds(30), {}}));
  }
  std::vector<transport::Progress> progress;
  std::vector<std::unique_ptr<transport::Mailbox<Value>>> mailboxes;
};

struct IntegerWatch final : transport::PeerWatch {
  IntegerWatch(IntegerWorld& in, Rank of) : world(in), own(of) {}
  void wait_begins(WorldRank peer) override { world.progress[own.index()].wait_begins(peer); }
  void wait_ends() override { world.progress[own.index()].wait_ends(); }
  void ask(WorldRank) override {}
  std::optional<transport::PeerStatus> status(WorldRank rank) const override {
    return world.progress[rank.index()].read();
  }
  bool status_is_delayed() const override { return false; }
  IntegerWorld& world;
  Rank own;
};

/// A rank's access to the others' mailboxes. Delays every action by a random time from the rank and the seed.
struct ThreadPost {
  ThreadPost(IntegerWorld& world, Rank rank, unsigned seed)
      : watch(world, rank), noise(seed * 7919u + static_cast<unsigned>(rank.value()) + 1) {}

  void begin(const Instruction& instruction) {
    watch.world.progress[watch.own.index()].report(rank::position_of(instruction));
    noise = noise * 1103515245u + 12345u;
    for (unsigned i = 0; i < (noise >> 16) % 4; ++i) std::this_thread::yield();
    for (unsigned i = 0; i < (noise >> 20) % 512; ++i) spun = spun + i;
  }
  void put(Rank to, const Tag& tag, Value value) {
    watch.world.mailboxes[to.index()]->put(WorldRank(watch.own.value()), tag, value);
  }
  Value take(Rank from, const Tag& tag, const Instruction& instruction) {
    return watch.world.mailboxes[watch.own.index()]->take(WorldRank(from.value()), tag, to_string(instruction), watch);
  }

  IntegerWatch watch;
  unsigned noise;
  volatile unsigned spun = 0;
};

/// Expects the trace to show an order that dependencies permit. A trace that does not is stored.
inline void expect_in_order(const Trace& trace) {
  const OrderCheck check = check_order(trace);
  EXPECT_EQ(check.steps, 1U);
  if (!check.violation) return;
  const std::string path = testing::TempDir() + "out_of_order.json";
  std::ofstream(path) << write_trace(trace);
  ADD_FAILURE() << *check.violation << "; to check it again: penstock trace validate " << path;
}

/// A thread per rank.
inline void run_in_threads(const Schedule& schedule, unsigned seed = 0) {
  const Validation validation = validate(schedule);
  ASSERT_TRUE(validation.ok) << validation.reason;
  using Handler = IntegerHandler<ThreadPost>;
  const std::vector<rank::Program> programs = programs_of(schedule);
  IntegerWorld world(schedule.rank_count());
  std::vector<Handler> handlers;
  handlers.reserve(programs.size());
  for (int r = 0; r < schedule.rank_count(); ++r)
    handlers.emplace_back(ThreadPost(world, Rank(r), seed), schedule,
                          validation.peak_activations[static_cast<std::size_t>(r)]);
  Trace trace{schedule, 1, {}, std::vector<std::vector<RankStep>>(programs.size())};
  test::run_world(schedule.rank_count(), [&](int r) {
    const auto rank = static_cast<std::size_t>(r);
    Recorder recorder;
    recorder.begin_step(0);
    rank::execute(programs[rank], handlers[rank], recorder);
    recorder.end_step();
    std::int64_t last_end = 0;
    trace.ranks[rank] = recorder.steps();
    for (const Span& span : trace.ranks[rank].at(0).spans) {
      EXPECT_LE(last_end, span.begin_ns);
      EXPECT_LE(span.begin_ns, span.end_ns);
      last_end = span.end_ns;
    }
  });
  expect_like_plain_loop(schedule, validation, handlers);
  expect_in_order(trace);
}

}  // namespace penstock
