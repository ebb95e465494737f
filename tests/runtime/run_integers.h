// Runs a lowered schedule on the executor with integers: in one thread, rank by rank in turns, or with a thread per
// rank and random delays. For tests.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "penstock/runtime/position.h"
#include "penstock/schedule/schedule.h"
#include "penstock/transport/mailbox.h"
#include "tests/runtime/integer_handler.h"
#include "tests/transport/run_world.h"

namespace penstock {

/// Expects what every rank has done to be what the plain loop does, with as much alive as validate() said.
template <class Handler>
void expect_like_plain_loop(const Schedule& schedule, const Validation& verdict, const std::vector<Handler>& handler) {
  StepValues values;
  for (std::size_t rank = 0; rank < handler.size(); ++rank) {
    values.add(handler[rank].values());
    EXPECT_EQ(handler[rank].peak(), verdict.peak_activations[rank]) << "rank " << rank;
    EXPECT_EQ(handler[rank].left_over(), 0u) << "rank " << rank;
  }
  const StepValues expected = plain_loop(schedule);
  EXPECT_EQ(values.outputs, expected.outputs);
  EXPECT_EQ(values.input_gradients, expected.input_gradients);
  EXPECT_EQ(values.weights, expected.weights);
  EXPECT_EQ(values.updates, expected.updates);
}

inline std::vector<Program> programs_of(const Schedule& schedule) {
  const Dependencies dependencies(schedule, chain(schedule.stage_count()));
  std::vector<Program> programs;
  for (const Order& order : schedule.orders) programs.emplace_back(order, dependencies);
  return programs;
}

/// All messages of a world of one thread.
struct SharedPost {
  using Letters = std::unordered_map<Tag, Value>;
  Letters* letters;

  void begin(const Instruction&) {}
  void put(Rank, const Tag& tag, Value value) {
    require<InternalError>(letters->emplace(tag, value).second, "a message was sent twice");
  }
  Value take(Rank, const Tag& tag, const Instruction&) { return letters->extract(tag).mapped(); }
};

/// One thread; a rank goes on until it would wait, then the next one has its turn.
inline void run_interleaved(const Schedule& schedule) {
  const Validation verdict = validate(schedule);
  ASSERT_TRUE(verdict.ok) << verdict.reason;
  using Handler = IntegerHandler<SharedPost>;
  const std::vector<Program> programs = programs_of(schedule);
  SharedPost::Letters letters;
  std::vector<Handler> handler;
  for (const int bound : verdict.peak_activations) handler.emplace_back(SharedPost{&letters}, schedule, bound);
  Recorder recorder(1);
  recorder.begin_step(0);
  std::int64_t begin = now_ns();

  const auto has_arrived = [&](const Program& program, const Program::Action& action) {
    for (std::uint32_t i = action.first_receive; i < action.end_receive; ++i)
      if (!letters.contains(Handler::tag_of(program.receive(i)))) return false;
    return true;
  };
  std::vector<std::size_t> at(programs.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < programs.size(); ++rank)
      for (const auto& actions = programs[rank].actions();
           at[rank] < actions.size() && has_arrived(programs[rank], actions[at[rank]]); ++at[rank]) {
        execute_action(programs[rank], actions[at[rank]], handler[rank], recorder, begin);
        moved = true;
      }
  }
  for (std::size_t rank = 0; rank < programs.size(); ++rank)
    ASSERT_EQ(at[rank], programs[rank].actions().size()) << "rank " << rank << " came to no end";
  expect_like_plain_loop(schedule, verdict, handler);
  EXPECT_TRUE(letters.empty());
}

/// The mailboxes of a world of threads, and where each rank is.
struct IntegerWorld {
  explicit IntegerWorld(int ranks) : progress(static_cast<std::size_t>(ranks)) {
    for (int r = 0; r < ranks; ++r)
      mailboxes.push_back(std::make_unique<Mailbox<Value>>(WorldRank(r), WaitPolicy{std::chrono::seconds(30), {}}));
  }
  std::vector<Progress> progress;
  std::vector<std::unique_ptr<Mailbox<Value>>> mailboxes;
};

struct IntegerWatch final : PeerWatch {
  IntegerWatch(IntegerWorld& in, Rank of) : world(in), own(of) {}
  void wait_begins(WorldRank peer) override { world.progress[own.index()].wait_begins(peer); }
  void wait_ends() override { world.progress[own.index()].wait_ends(); }
  void ask(WorldRank) override {}
  std::optional<PeerStatus> status(WorldRank rank) const override { return world.progress[rank.index()].read(); }
  bool hears_late() const override { return false; }
  IntegerWorld& world;
  Rank own;
};

/// A rank's way to the others' mailboxes. Dawdles before every action, each rank and seed in its own way.
struct ThreadPost {
  ThreadPost(IntegerWorld& world, Rank rank, unsigned seed)
      : watch(world, rank), noise(seed * 7919u + static_cast<unsigned>(rank.value()) + 1) {}

  void begin(const Instruction& instruction) {
    watch.world.progress[watch.own.index()].report(position_of(instruction));
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

/// A thread per rank.
inline void run_in_threads(const Schedule& schedule, unsigned seed = 0) {
  const Validation verdict = validate(schedule);
  ASSERT_TRUE(verdict.ok) << verdict.reason;
  using Handler = IntegerHandler<ThreadPost>;
  const std::vector<Program> programs = programs_of(schedule);
  IntegerWorld world(schedule.rank_count());
  std::vector<Handler> handler;
  handler.reserve(programs.size());
  for (int r = 0; r < schedule.rank_count(); ++r)
    handler.emplace_back(ThreadPost(world, Rank(r), seed), schedule,
                         verdict.peak_activations[static_cast<std::size_t>(r)]);
  test::run_world(schedule.rank_count(), [&](int r) {
    const auto rank = static_cast<std::size_t>(r);
    Recorder recorder;
    recorder.begin_step(0);
    execute(programs[rank], handler[rank], recorder);
    recorder.end_step();
    std::int64_t last_end = 0;
    const std::vector<RankStep> steps = recorder.steps();
    for (const Span& span : steps.at(0).spans) {
      EXPECT_LE(last_end, span.begin_ns);
      EXPECT_LE(span.begin_ns, span.end_ns);
      last_end = span.end_ns;
    }
  });
  expect_like_plain_loop(schedule, verdict, handler);
}

}  // namespace penstock
