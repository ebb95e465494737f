#include "penstock/plan/stage_cutter.h"

#include <algorithm>
#include <limits>

#include "penstock/base/error.h"
#include "penstock/plan/cut.h"

namespace penstock {
namespace {

constexpr double forbidden = std::numeric_limits<double>::infinity();

Stages stages_of(const Cut& cut) {
  Stages stages;
  for (std::size_t layer = 0; layer < cut.size(); ++layer) {
    const auto at = static_cast<int>(layer);
    if (layer == 0 || cut[layer] != cut[layer - 1]) stages.push_back({at, at});
    stages.back().end = at + 1;
  }
  return stages;
}

Partition found(std::optional<Partition> partition) {
  require<InternalError>(partition.has_value(), "no cut was found where one is known");
  return *std::move(partition);
}

}  // namespace

std::vector<StageCut> StageCutter::cuts(const Schedule& schedule) {
  std::vector<StageCut> cuts;
  if (auto cut = fastest(schedule)) cuts.push_back(*std::move(cut));
  auto [fixed, is_new] = fixed_.try_emplace(schedule.stage_count());
  if (is_new) {
    std::vector<LayerSize> layers;
    for (const LayerCost& layer : costs_.layers)
      layers.push_back({layer.name, static_cast<std::int64_t>(layer.parameter_bytes)});
    fixed->second = {{CutKind::uniform, true, stages_of(cut_uniformly(layers, schedule.stage_count()))},
                     {CutKind::parameters, true, stages_of(cut_by_parameters(layers, schedule.stage_count()))}};
  }
  for (const StageCut& cut : fixed->second)
    if (std::none_of(cuts.begin(), cuts.end(), [&](const StageCut& other) { return other.stages == cut.stages; }))
      cuts.push_back(cut);
  return cuts;
}

StageCut StageCutter::smallest(const Schedule& schedule) {
  const std::vector<LiveContexts> live = live_contexts(schedule, sums_.weight_share());
  const RankPrice bytes = [&](Rank rank, std::span<const Stretch> stages) {
    return memory_bytes(sums_, live[rank.index()], stages);
  };
  Partition best = found(cheapest_partition({.layers = sums_.layers(),
                                             .rank_of_stage = schedule.rank_of_stage,
                                             .price = bytes,
                                             .least = bytes,
                                             .share = [&](Stretch s) { return sums_.parameter_bytes(s); }}));
  return {CutKind::memory, best.exact, std::move(best.stages)};
}

/// Without what these costs do not tell apart: fewer paces are searched.
StageCutter::Pace StageCutter::pace_of(const Schedule& schedule) const {
  GradientWords words;
  if (sums_.has_fused() || sums_.has_backward()) words = gradient_words(schedule);
  if (!sums_.has_fused()) words.fused = 0;
  if (!sums_.has_backward() && !sums_.has_fused()) words.unsplit = 0;
  return {schedule.rank_of_stage, words};
}

double StageCutter::rank_time(const Pace& pace, Rank rank, std::span<const Stretch> stages) const {
  const std::vector<Rank>& rank_of_stage = pace.rank_of_stage;
  const auto is_elsewhere = [&](std::size_t s) { return s < rank_of_stage.size() && rank_of_stage[s] != rank; };
  double time = 0;
  std::size_t s = 0;
  for (const Stretch& stage : stages) {
    while (rank_of_stage[s] != rank) ++s;
    time += sums_.work_and_update(stage, pace.words);
    if (s > 0 && is_elsewhere(s - 1)) time += sums_.message(stage.begin);
    if (is_elsewhere(s + 1)) time += sums_.message(stage.end);
    ++s;
  }
  return time;
}

Partition StageCutter::fastest_where(const Pace& pace, const std::vector<LiveContexts>* live,
                                     const std::vector<Stages>& known) const {
  const std::vector<Rank>& rank_of_stage = pace.rank_of_stage;
  const auto fits = [&](Rank rank, std::span<const Stretch> stages) {
    return !live || memory_bytes(sums_, (*live)[rank.index()], stages) <= *costs_.memory_cap_bytes;
  };
  const auto work = [&](std::span<const Stretch> stages) {
    double sum = 0;
    for (const Stretch& stage : stages) sum += sums_.work_and_update(stage, pace.words);
    return sum;
  };
  PartitionProblem problem{
      .layers = sums_.layers(),
      .rank_of_stage = rank_of_stage,
      .price =
          [&](Rank rank, std::span<const Stretch> stages) {
            return fits(rank, stages) ? rank_time(pace, rank, stages) : forbidden;
          },
      .least = [&](Rank rank,
                   std::span<const Stretch> stages) { return fits(rank, stages) ? work(stages) : forbidden; },
      .share = [&](Stretch stretch) { return sums_.work_and_update(stretch, pace.words); }};
  Partition fast = found(cheapest_partition(problem, known));
  const std::size_t ranks = std::max_element(rank_of_stage.begin(), rank_of_stage.end())->index() + 1;
  if (ranks == rank_of_stage.size()) return fast;

  // Among the cuts with ranks that fast, the one whose slowest stage is the fastest.
  const auto slowest = [&](std::span<const Stretch> stages) {
    double time = 0;
    for (const Stretch& stage : stages) time = std::max(time, sums_.work(stage, pace.words));
    return time;
  };
  const auto chunks = static_cast<double>(rank_of_stage.size()) / static_cast<double>(ranks);
  const RankPrice of_ranks = problem.price;
  problem.price = [&](Rank rank, std::span<const Stretch> stages) {
    return of_ranks(rank, stages) <= fast.price ? slowest(stages) : forbidden;
  };
  problem.least = [&](Rank rank, std::span<const Stretch> stages) {
    return fits(rank, stages) && work(stages) <= fast.price ? slowest(stages) : forbidden;
  };
  problem.share = [&](Stretch stretch) { return sums_.work(stretch, pace.words) / chunks; };
  Partition even = found(cheapest_partition(problem, {fast.stages}));
  return {std::move(even.stages), fast.price, fast.exact && even.exact};
}

const Partition& StageCutter::fastest_without_cap(const Pace& pace) {
  const auto known = fastest_.find(pace);
  if (known != fastest_.end()) return known->second;
  return fastest_.emplace(pace, fastest_where(pace, nullptr, {})).first->second;
}

std::optional<StageCut> StageCutter::fastest(const Schedule& schedule) {
  const Pace pace = pace_of(schedule);
  const Partition& free = fastest_without_cap(pace);
  if (!costs_.memory_cap_bytes) return StageCut{CutKind::time, free.exact, free.stages};
  const auto needs = [&](const Stages& stages) {
    const std::vector<double> bytes = memory_bytes(sums_, schedule, stages);
    return *std::max_element(bytes.begin(), bytes.end());
  };
  if (needs(free.stages) <= *costs_.memory_cap_bytes) return StageCut{CutKind::time, free.exact, free.stages};
  const StageCut least = smallest(schedule);
  if (needs(least.stages) > *costs_.memory_cap_bytes) return std::nullopt;
  const std::vector<LiveContexts> live = live_contexts(schedule, sums_.weight_share());
  const Partition within = fastest_where(pace, &live, {least.stages});
  return StageCut{CutKind::time, within.exact, within.stages};
}

}  // namespace penstock
