#include "penstock/plan/stage_partitioner.h"

#include <algorithm>
#include <limits>

#include "penstock/base/error.h"
#include "penstock/plan/partition.h"

namespace penstock {
namespace {

constexpr double decides_ties = 1e-3;  // as Pace::slowest_counts
constexpr double forbidden = std::numeric_limits<double>::infinity();

/// Of a limit in bytes. Where nothing may be used, one byte is too much.
double divisor(double limit) { return std::max(limit, 0.5); }

Stages stages_of(const Partition& partition) {
  Stages stages;
  for (std::size_t layer = 0; layer < partition.size(); ++layer) {
    const auto at = static_cast<int>(layer);
    if (layer == 0 || partition[layer] != partition[layer - 1]) stages.push_back({at, at});
    stages.back().end = at + 1;
  }
  return stages;
}

FoundPartition found(std::optional<FoundPartition> partition) {
  require<InternalError>(partition.has_value(), "no partition was found although one is known");
  return *std::move(partition);
}

}  // namespace

StagePartitioner::StagePartitioner(const LayerCosts& costs, const LayerSums& sums,
                                   const std::optional<MemoryLimit>& limit)
    : costs_(costs), sums_(sums), blocks_(blocks_of(costs)) {
  if (limit && is_in_bytes(*limit)) activation_limit_ = static_cast<double>(std::get<BytesPerRank>(*limit).bytes);
}

double StagePartitioner::need(Rank rank, const LiveContexts& live, std::span<const LayerRange> stages) const {
  if (!limits_memory()) return memory_bytes(sums_, live, stages);
  double most = 0;
  if (const double limit = sums_.site().memory(rank); limit < forbidden)
    most = memory_bytes(sums_, live, stages) / divisor(limit);
  if (activation_limit_) most = std::max(most, activation_bytes(sums_, live, stages) / divisor(*activation_limit_));
  return most;
}

double StagePartitioner::need(const std::vector<LiveContexts>& live, const std::vector<Rank>& rank_of_stage,
                              const Stages& stages) const {
  std::vector<Stages> of_rank(live.size());
  for (std::size_t s = 0; s < stages.size(); ++s) of_rank[rank_of_stage[s].index()].push_back(stages[s]);
  double most = 0;
  for (std::size_t rank = 0; rank < live.size(); ++rank)
    most = std::max(most, need(Rank(static_cast<std::int32_t>(rank)), live[rank], of_rank[rank]));
  return most;
}

std::vector<StagePartition> StagePartitioner::partitions(const Schedule& schedule) {
  std::vector<StagePartition> partitions;
  const auto add = [&](const StagePartition& partition) {
    if (std::ranges::find(partitions, partition.stages, &StagePartition::stages) == partitions.end())
      partitions.push_back(partition);
  };
  const double of_m = fill_and_drain(schedule);
  for (const double slowest_counts : {std::min(of_m, decides_ties), of_m})
    if (const auto partition = fastest(schedule, slowest_counts)) add(*partition);
  auto [fixed, is_new] = fixed_.try_emplace(schedule.stage_count());
  if (is_new) {
    std::vector<LayerSize> layers;
    for (const LayerCost& layer : costs_.layers)
      layers.push_back({layer.name, static_cast<std::int64_t>(layer.parameter_bytes), {}, layer.block});
    fixed->second = {
        {PartitionKind::uniform, true, stages_of(partition_uniformly(layers, schedule.stage_count()))},
        {PartitionKind::parameters, true, stages_of(partition_by_parameters(layers, schedule.stage_count()))}};
  }
  for (const StagePartition& partition : fixed->second) add(partition);
  return partitions;
}

StagePartition StagePartitioner::smallest(const Schedule& schedule) {
  const std::vector<LiveContexts> live = live_contexts(schedule, sums_.weight_share());
  const RankCost bytes = [&](Rank rank, std::span<const LayerRange> stages) {
    return need(rank, live[rank.index()], stages);
  };
  // A lower bound: only the parameters, in the unit of need().
  double largest = 0;
  for (Rank rank(0); rank.value() < schedule.rank_count(); rank = rank.next())
    largest = std::max(largest, sums_.site().memory(rank));
  const auto parameters = [&](LayerRange stage) {
    if (sums_.site().limits_memory())
      return largest < forbidden ? sums_.parameter_bytes(stage) / divisor(largest) : 0.0;
    return activation_limit_ ? 0.0 : sums_.parameter_bytes(stage);
  };
  FoundPartition best = found(cheapest_partition({.layers = sums_.layers(),
                                                  .rank_of_stage = schedule.rank_of_stage,
                                                  .begins = possible_begins(blocks_, schedule.stage_count()),
                                                  .cost = bytes,
                                                  .least = bytes,
                                                  .share = parameters}));
  return {PartitionKind::memory, best.exact, std::move(best.stages)};
}

/// Without properties that have no effect with these costs, so that fewer searches are needed.
StagePartitioner::Pace StagePartitioner::pace_of(const Schedule& schedule, double slowest_counts) const {
  GradientInstructions instructions;
  if (sums_.has_fused() || sums_.has_backward()) instructions = gradient_instructions(schedule);
  if (!sums_.has_fused()) instructions.fused = 0;
  if (!sums_.has_backward() && !sums_.has_fused()) instructions.unsplit = 0;
  return {schedule.rank_of_stage, instructions, slowest_counts};
}

double StagePartitioner::rank_time(const Pace& pace, Rank rank, std::span<const LayerRange> stages) const {
  const std::vector<Rank>& rank_of_stage = pace.rank_of_stage;
  const Site& site = sums_.site();
  const auto message_from = [&](std::size_t s, int layer) {
    if (s >= rank_of_stage.size() || rank_of_stage[s] == rank) return 0.0;
    return sums_.message(layer, site.link(rank_of_stage[s], rank)).time;
  };
  double work = 0, messages = 0;
  std::size_t s = 0;
  for (const LayerRange& stage : stages) {
    while (rank_of_stage[s] != rank) ++s;
    work += sums_.work_and_update(stage, pace.instructions);
    if (s > 0) messages += message_from(s - 1, stage.begin);
    messages += message_from(s + 1, stage.end);
    ++s;
  }
  return site.slowness(rank) * work + messages;
}

FoundPartition StagePartitioner::fastest_where(const Pace& pace, const std::vector<LiveContexts>* live,
                                               const std::vector<Stages>& known) const {
  const std::vector<Rank>& rank_of_stage = pace.rank_of_stage;
  const auto fits = [&](Rank rank, std::span<const LayerRange> stages) {
    return !live || need(rank, (*live)[rank.index()], stages) <= 1;
  };
  const Site& site = sums_.site();
  const auto slowest = [&](std::span<const LayerRange> stages) {
    double time = 0;
    for (const LayerRange& stage : stages) time = std::max(time, sums_.work(stage, pace.instructions));
    return pace.slowest_counts * time;
  };
  const auto least = [&](std::span<const LayerRange> stages) {
    double sum = slowest(stages);
    for (const LayerRange& stage : stages) sum += sums_.work_and_update(stage, pace.instructions);
    return sum;
  };
  const std::size_t ranks = std::ranges::max_element(rank_of_stage)->index() + 1;
  const double of_a_stage =
      pace.slowest_counts * static_cast<double>(ranks) / static_cast<double>(rank_of_stage.size());
  return found(cheapest_partition({.layers = sums_.layers(),
                                   .rank_of_stage = rank_of_stage,
                                   .begins = possible_begins(blocks_, static_cast<int>(rank_of_stage.size())),
                                   .cost =
                                       [&](Rank rank, std::span<const LayerRange> stages) {
                                         if (!fits(rank, stages)) return forbidden;
                                         return rank_time(pace, rank, stages) + site.slowness(rank) * slowest(stages);
                                       },
                                   .least =
                                       [&](Rank rank, std::span<const LayerRange> stages) {
                                         return fits(rank, stages) ? site.slowness(rank) * least(stages) : forbidden;
                                       },
                                   .share =
                                       [&](LayerRange range) {
                                         return site.least_slowness() *
                                                (sums_.work_and_update(range, pace.instructions) +
                                                 of_a_stage * sums_.work(range, pace.instructions));
                                       }},
                                  known));
}

double StagePartitioner::fill_and_drain(const Schedule& schedule) const {
  const int ranks = schedule.rank_count();
  return ranks < schedule.stage_count() ? static_cast<double>(ranks - 1) / schedule.micro_batches : 0;
}

StagePartition StagePartitioner::fastest_of_any_size(const Pace& pace) {
  auto known = fastest_.find(pace);
  if (known == fastest_.end()) known = fastest_.emplace(pace, fastest_where(pace, nullptr, {})).first;
  return {PartitionKind::time, known->second.exact, known->second.stages};
}

std::optional<StagePartition> StagePartitioner::fastest(const Schedule& schedule, double slowest_counts) {
  const Pace pace = pace_of(schedule, slowest_counts);
  const StagePartition free = fastest_of_any_size(pace);
  if (!limits_memory()) return free;
  const std::vector<LiveContexts> live = live_contexts(schedule, sums_.weight_share());
  const auto fits = [&](const Stages& stages) { return need(live, schedule.rank_of_stage, stages) <= 1; };
  if (fits(free.stages)) return free;
  const StagePartition least = smallest(schedule);
  if (!fits(least.stages)) return std::nullopt;
  const FoundPartition within = fastest_where(pace, &live, {least.stages});
  return StagePartition{PartitionKind::time, within.exact, within.stages};
}

}  // namespace penstock
