// The executor with hands that hold integers: the loop that trains networks, where TSAN can see all of it.
#include "penstock/runtime/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <thread>
#include <tuple>

#include "penstock/runtime/stash.h"
#include "penstock/transport/mailbox.h"
#include "tests/transport/run_world.h"

namespace penstock {
namespace {

TEST(Program, EveryReceiveBelongsToTheInstructionThatNeedsIt) {
  const Schedule schedule = lower(generate("1f1b", {.ranks = 2, .micro_batches = 2}));
  const Dependencies dependencies(schedule, chain(2));
  const Program program(schedule.orders[1], dependencies);
  for (const Program::Action& action : program.actions()) {
    EXPECT_FALSE(is_receive(action.instruction.op()));
    const auto receives = action.end_receive - action.first_receive;
    EXPECT_EQ(receives, action.instruction.op() == Op::forward ? 1u : 0u) << to_string(action.instruction);
  }
}

TEST(Program, RefusesAMissingReceive) {
  Schedule schedule = lower(generate("1f1b", {.ranks = 2, .micro_batches = 2}));
  std::erase_if(schedule.orders[1], [](const Instruction& i) { return is_receive(i.op()); });
  EXPECT_THROW(Program(schedule.orders[1], Dependencies(schedule, chain(2))), PlanError);
}

TEST(Stash, CountsAndKeepsItsBound) {
  Stash<int> stash;
  stash.set_bound(2);
  stash.put(StageId(0), MicroBatch(0), 10);
  stash.put(StageId(0), MicroBatch(1), 11);
  EXPECT_THROW(stash.put(StageId(0), MicroBatch(2), 12), InternalError);
  EXPECT_EQ(stash.take(StageId(0), MicroBatch(1)), 11);
  EXPECT_THROW(stash.take(StageId(0), MicroBatch(1)), InternalError);
  EXPECT_EQ(stash.peak(), 3);  // the one too many was seen
}

/// A world of threads that exchange integers: mailboxes, and a watch over one board of progress.
struct IntegerWorld {
  struct Watch final : PeerWatch {
    Watch(IntegerWorld& in, WorldRank of) : world(in), own(of) {}
    void wait_begins(WorldRank peer) override { world.progress[own.index()].wait_begins(peer); }
    void wait_ends() override { world.progress[own.index()].wait_ends(); }
    void ask(WorldRank) override {}
    std::optional<Standing> standing(WorldRank rank) const override { return world.progress[rank.index()].read(); }
    bool hears_late() const override { return false; }
    IntegerWorld& world;
    WorldRank own;
  };

  explicit IntegerWorld(int ranks) : progress(static_cast<std::size_t>(ranks)) {
    for (int r = 0; r < ranks; ++r)
      mailboxes.push_back(std::make_unique<Mailbox<long>>(WorldRank(r), Patience{std::chrono::seconds(30), {}}));
  }

  std::vector<Progress> progress;
  std::vector<std::unique_ptr<Mailbox<long>>> mailboxes;
};

/// F adds 1 to what comes in; B adds 1 on the way back. What arrives tells whether order and pairing held.
class IntegerHands {
 public:
  IntegerHands(IntegerWorld& world, const Schedule& schedule, Rank rank, int bound)
      : world_(world),
        schedule_(schedule),
        rank_(rank),
        watch_(world, WorldRank(rank.value())),
        noise_(static_cast<unsigned>(rank.value()) + 1) {
    stash_.set_bound(bound);
  }

  void begin(const Instruction& instruction) {
    Position position;
    const std::string word = to_string(instruction);
    word.copy(position.word, sizeof(position.word) - 1);
    world_.progress[rank_.index()].report(position);
    noise_ = noise_ * 1103515245u + 12345u;
    for (unsigned i = 0; i < (noise_ >> 16) % 4; ++i) std::this_thread::yield();
  }

  std::int64_t receive(const Instruction& i) {
    const WorldRank from(schedule_.rank_of(i.peer()).value());
    const bool is_forward = i.op() == Op::recv_forward;
    inbox_[key(i.stage(), i.micro_batch(), is_forward)] = world_.mailboxes[rank_.index()]->take(
        from, tag(i.peer(), i.stage(), i.micro_batch(), is_forward), to_string(i), watch_);
    return 0;
  }

  void perform(const Instruction& i) {
    const StageId stage = i.stage();
    const MicroBatch m = i.micro_batch();
    switch (i.op()) {
      case Op::forward: {
        const long in = stage.value() == 0 ? m.value() * 1000L : take(key(stage, m, true));
        EXPECT_EQ(in, m.value() * 1000L + stage.value()) << to_string(i);
        stash_.put(stage, m, in);
        hand_over(StageId(stage.value() + 1), m, true, in + 1);
        return;
      }
      case Op::backward: {
        const long kept = stash_.take(stage, m);
        // Up to the last stage and back: S steps forward, then one for every stage between there and here.
        const bool is_last = stage.value() + 1 == schedule_.stage_count();
        const long in = is_last ? kept + 1 : take(key(stage, m, false));
        EXPECT_EQ(in, m.value() * 1000L + 2L * schedule_.stage_count() - stage.value() - 1) << to_string(i);
        hand_over(StageId(stage.value() - 1), m, false, in + 1);
        return;
      }
      case Op::send_forward:
      case Op::send_backward: {
        const bool is_forward = i.op() == Op::send_forward;
        world_.mailboxes[schedule_.rank_of(i.peer()).index()]->put(
            WorldRank(rank_.value()), tag(stage, i.peer(), m, is_forward), take(key(i.peer(), m, is_forward)));
        return;
      }
      default: ++steps_; return;
    }
  }

  int peak() const { return stash_.peak(); }
  int steps() const { return steps_; }

 private:
  using Key = std::tuple<StageId, MicroBatch, bool>;  // consumer, micro-batch, forward
  static Key key(StageId stage, MicroBatch m, bool forward) { return {stage, m, forward}; }
  static Tag tag(StageId from, StageId to, MicroBatch m, bool forward) {
    return {0, forward ? Traffic::forward : Traffic::backward, 0, from.value(), to.value(), m.value()};
  }
  long take(const Key& k) {
    auto node = inbox_.extract(k);
    EXPECT_FALSE(node.empty());
    return node.empty() ? -1 : node.mapped();
  }
  void hand_over(StageId consumer, MicroBatch m, bool forward, long value) {
    if (consumer.value() >= 0 && consumer.value() < schedule_.stage_count()) inbox_[key(consumer, m, forward)] = value;
  }

  IntegerWorld& world_;
  const Schedule& schedule_;
  Rank rank_;
  IntegerWorld::Watch watch_;
  Stash<long> stash_;
  std::map<Key, long> inbox_;
  unsigned noise_;
  int steps_ = 0;
};

/// Runs `schedule` on threads; the live contexts must peak where the judge says.
void run_with_integers(const Schedule& schedule) {
  const Verdict verdict = judge(schedule);
  ASSERT_TRUE(verdict.ok) << verdict.reason;
  const Dependencies dependencies(schedule, chain(schedule.stage_count()));
  IntegerWorld world(schedule.rank_count());
  test::run_world(schedule.rank_count(), [&](int r) {
    const auto index = static_cast<std::size_t>(r);
    IntegerHands hands(world, schedule, Rank(r), verdict.peak_activations[index]);
    Recorder recorder;
    recorder.begin_step(0);
    execute(Program(schedule.orders[index], dependencies), hands, recorder);
    recorder.end_step();
    EXPECT_EQ(hands.peak(), verdict.peak_activations[index]);
    EXPECT_EQ(hands.steps(), 1);
    std::int64_t last_end = 0;
    const std::vector<RankStep> steps = recorder.steps();
    for (const Span& span : steps.at(0).spans) {
      EXPECT_LE(last_end, span.begin_ns);
      EXPECT_LE(span.begin_ns, span.end_ns);
      last_end = span.end_ns;
    }
  });
}

TEST(Execute, EveryGeneratorRunsToItsEndWithTheRightMessages) {
  for (const char* name : {"sequential", "gpipe", "1f1b"})
    for (int p = 1; p <= 5; ++p)
      for (int m : {1, 2, 3, 7}) {
        SCOPED_TRACE(std::string(name) + " p = " + std::to_string(p) + " m = " + std::to_string(m));
        run_with_integers(lower(generate(name, {.ranks = p, .micro_batches = m})));
      }
}

// Receives posted long before their use, as in torch's lists, must not stall the rank that posts them.
TEST(Execute, EarlyReceivesDoNotBlock) {
  Schedule schedule = lower(generate("gpipe", {.ranks = 3, .micro_batches = 4}));
  for (Order& order : schedule.orders)
    std::stable_partition(order.begin(), order.end(), [](const Instruction& i) { return is_receive(i.op()); });
  run_with_integers(schedule);
}

}  // namespace
}  // namespace penstock
