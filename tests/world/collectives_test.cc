#include "penstock/world/collectives.h"

#include <mutex>
#include <numeric>

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/world/gather.h"
#include "penstock/world/rank_threads.h"
#include "penstock/world/world.h"

namespace penstock::collectives_test {
using namespace transport;
namespace {

struct RankNumber {
  static constexpr std::string_view record_name = "RankNumber";
  std::int32_t rank = 0;
  double half = 0;
};

Message number_of(const RankContext& context) { return message_of(context.rank.value()); }

TEST(Collectives, gather_by_rank_on_rank_0_alone) {
  World world(WorldOptions{.stages = 2, .replicas = 2});
  std::mutex mutex;
  std::vector<std::vector<RankNumber>> on_0;
  std::size_t elsewhere = 0;
  ranks_of(world).run_on_local_ranks([&](const RankContext& context) {
    const std::int32_t rank = context.rank.value();
    const std::vector<RankNumber> own(static_cast<std::size_t>(rank), {rank, rank / 2.0});
    auto all = gather_records(context, control_tag(1, Topic::gathering, 7), own, "its numbers");
    const std::lock_guard lock(mutex);
    if (rank == 0)
      on_0 = std::move(all);
    else
      elsewhere += all.size();
  });
  EXPECT_EQ(elsewhere, 0U);
  ASSERT_EQ(on_0.size(), 4U);
  for (std::size_t rank = 0; rank < on_0.size(); ++rank) {
    ASSERT_EQ(on_0[rank].size(), rank);
    for (const RankNumber& record : on_0[rank]) {
      EXPECT_EQ(record.rank, static_cast<std::int32_t>(rank));
      EXPECT_EQ(record.half, static_cast<double>(rank) / 2);
    }
  }
}

TEST(Collectives, every_rank_gets_what_rank_0_sends_or_decides) {
  World world(WorldOptions{.stages = 3});
  std::mutex mutex;
  std::vector<std::int32_t> sent, decided;
  int decisions = 0;
  ranks_of(world).run_on_local_ranks([&](const RankContext& context) {
    const Message from_0 = broadcast(context, control_tag(1, Topic::kernels),
                                     context.rank == WorldRank(0) ? message_of(5) : Message{}, "what rank 0 sends");
    // The same round of another topic: its messages are others.
    const Message sum =
        agree(context, control_tag(1, Topic::partition), number_of(context),
              [&](const std::vector<Message>& all) {
                ++decisions;
                return message_of(std::accumulate(all.begin(), all.end(), 0, [](int total, const Message& message) {
                  return total + record_in<std::int32_t>(message);
                }));
              },
              {.parts = "its number", .decision = "the sum"});
    const std::lock_guard lock(mutex);
    sent.push_back(record_in<int>(from_0));
    decided.push_back(record_in<int>(sum));
  });
  EXPECT_EQ(decisions, 1);
  EXPECT_EQ(sent, (std::vector<std::int32_t>{5, 5, 5}));
  EXPECT_EQ(decided, (std::vector<std::int32_t>{3, 3, 3}));
}

TEST(Collectives, an_error_of_the_decision_reaches_every_rank) {
  World world(WorldOptions{.stages = 3});
  EXPECT_THROW(ranks_of(world).run_on_local_ranks([](const RankContext& context) {
    agree(context, control_tag(1, Topic::state), number_of(context),
          [](const std::vector<Message>&) -> Message { throw ConfigError("no"); },
          {.parts = "its number", .decision = "the decision"});
  }),
               ConfigError);
}

TEST(Collectives, gathered_steps_keep_their_spans) {
  World world(WorldOptions{.stages = 2});
  const auto steps_of = [](WorldRank rank) {
    std::vector<RankStep> steps;
    for (int s = 0; s < 3; ++s) {
      RankStep step{static_cast<std::uint64_t>(s), 10 * s, 10 * s + 5, {}};
      for (int i = 0; i < s + rank.value(); ++i)
        step.spans.push_back({Instruction(), Activity::wait, 10 * s + i, 10 * s + i + 1, 3, 4});
      steps.push_back(std::move(step));
    }
    return steps;
  };
  std::vector<std::vector<RankStep>> all;
  ranks_of(world).run_on_local_ranks([&](const RankContext& context) {
    auto gathered = gather_steps(context, control_tag(1, Topic::gathering, 1), steps_of(context.rank));
    if (context.rank == WorldRank(0)) all = std::move(gathered);
  });
  EXPECT_EQ(all, (std::vector<std::vector<RankStep>>{steps_of(WorldRank(0)), steps_of(WorldRank(1))}));
}

TEST(HostClock, the_shortest_round_trip_gives_the_offset) {
  // The other clock is 5,000,000 ahead; a slow answer shifts the reading by half of its delay.
  const std::vector<ClockReading> readings{
      {100, 5'000'900, 1'100}, {2'000, 5'002'010, 2'020}, {3'000, 5'003'001, 4'000}};
  EXPECT_EQ(clock_offset_ns(readings), 5'000'000);
  EXPECT_EQ(clock_offset_ns({{9'000'000, 10, 9'000'020}}), -9'000'000) << "a host that has just been started";
}

TEST(HostClock, every_time_of_a_step_is_converted) {
  const Instruction instruction = Instruction::compute(Op::forward, StageId(0), MicroBatch(0));
  std::vector<RankStep> steps{{7, 1000, 1090, {{instruction, Activity::wait, 1010, 1020, 3, 2}}}};
  to_own_clock(900, steps);
  const std::vector<RankStep> moved{{7, 100, 190, {{instruction, Activity::wait, 110, 120, 3, 2}}}};
  EXPECT_EQ(steps, moved) << "transit times do not change";
}

}  // namespace
}  // namespace penstock::collectives_test
