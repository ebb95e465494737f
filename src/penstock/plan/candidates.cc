#include "penstock/plan/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "penstock/base/error.h"

namespace penstock {
namespace {

std::optional<MemoryLimit> limit_of(const Attempt& attempt) {
  return attempt.generator && attempt.generator->fits_limit ? std::optional(attempt.memory_limit) : std::nullopt;
}

Schedule with_weights(const Schedule& instructions, WeightGradients mode) {
  return mode == WeightGradients::fused ? fuse_w(instructions) : instructions;
}

std::vector<std::vector<LayerRange>> stages_of_ranks(const Schedule& schedule, const Stages& stages) {
  std::vector<std::vector<LayerRange>> of_rank(schedule.orders.size());
  for (std::size_t s = 0; s < stages.size(); ++s) of_rank[schedule.rank_of_stage[s].index()].push_back(stages[s]);
  return of_rank;
}

}  // namespace

void put_in_order(std::vector<Outcome>& outcomes) {
  constexpr double digits = 1e9;
  double shortest = std::numeric_limits<double>::infinity();
  for (const Outcome& outcome : outcomes)
    if (outcome.candidate.fits) shortest = std::min(shortest, outcome.candidate.prediction.makespan);
  const auto place_of = [&](const Outcome& outcome) {
    const Candidate& candidate = outcome.candidate;
    const double time = candidate.fits ? candidate.prediction.makespan : 0;
    return std::tuple(!candidate.fits, shortest > 0 ? std::round(time / shortest * digits) : time,
                      candidate.prediction.most_bytes());
  };
  std::stable_sort(outcomes.begin(), outcomes.end(),
                   [&](const Outcome& a, const Outcome& b) { return place_of(a) < place_of(b); });
}

void report_time(const Simulation& simulation, Prediction& prediction) {
  prediction.makespan = simulation.makespan;
  prediction.bubble_makespan = std::max(0.0, simulation.bubble_makespan);  // below 0 by rounding only
  prediction.bubble_span = std::max(0.0, simulation.bubble_span);
  prediction.peak_activations = simulation.peak_activations;
}

Stages ranges_of(const StageLayers& layers, const LayerCosts& costs) {
  Stages stages;
  int next = 0;
  for (const std::vector<std::string>& stage : layers) {
    const int begin = next;
    for (const std::string& layer : stage) {
      const auto index = static_cast<std::size_t>(next);
      const std::string known = index < costs.layers.size() ? costs.layers[index].name : "";
      require<ConfigError>(layer == known, "the plan has '", layer, "' as layer ", next, ", and the costs have ",
                           known.empty() ? "no more layers" : "'" + known + "'", ": they are for different networks");
      ++next;
    }
    stages.push_back({begin, next});
  }
  require<ConfigError>(next == std::ssize(costs.layers), "the plan has ", next, " layers, and the costs have ",
                       costs.layers.size(), ": they are for different networks");
  return stages;
}

std::vector<double> rank_bytes(const PlanSetting& setting, const LayerSums& sums, const Schedule& schedule,
                               const Outcome& outcome) {
  std::vector<double> bytes = memory_bytes(sums, schedule, outcome.stages);
  const auto of_rank = stages_of_ranks(schedule, outcome.stages);
  const double size = static_cast<double>(setting.costs.samples) / setting.micro_batches /
                      static_cast<double>(setting.costs.micro_batch_size);
  for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
    double recomputing = 0;
    for (const LayerRange& range : of_rank[rank])
      recomputing = std::max(recomputing, recompute_bytes(setting.costs, outcome.recomputed, range));
    bytes[rank] = std::ceil(bytes[rank] + recomputing * size);
  }
  return bytes;
}

void Candidates::run(const Attempt& attempt, const Schedule& base, const std::vector<WeightGradients>& modes,
                     std::vector<Outcome>& outcomes) {
  std::optional<Outcome> in_stream;
  const auto best_in_stream = [&] {
    if (!in_stream) in_stream = best_of(attempt, base, WeightGradients::stream);
    return *in_stream;
  };
  for (const WeightGradients mode : modes) {
    outcomes.push_back(mode == WeightGradients::stream ? best_in_stream() : best_of(attempt, base, mode));
    const bool fits = outcomes.back().candidate.fits;
    if (constraints_.recompute && setting_->site.limits_memory()) {
      const Schedule instructions = with_weights(base, mode);
      if (auto recomputed =
              recomputing(outcome_of(attempt, instructions, mode, partitioner_.fastest_of_any_size(instructions))))
        outcomes.push_back(*std::move(recomputed));
    }
    if (mode != WeightGradients::fused || fits) continue;
    if (auto grouped = grouped_within_cap(best_in_stream())) outcomes.push_back(*std::move(grouped));
  }
}

Schedule Candidates::schedule_of(const Outcome& outcome) const {
  const WeightGradients mode = outcome.candidate.weight_gradients;
  const Schedule instructions = outcome.attempt.instructions(outcome.costs);
  if (mode == WeightGradients::grouped)
    return fuse_w(instructions, {.group = 0, .activation_limit = fitting_in_both(instructions, outcome)});
  return with_weights(instructions, mode);
}

double Candidates::least_step() const {
  const LayerRange all{0, sums_.layers()};
  double work =
      sums_.forward(all) + sums_.input_grad(all) + std::min(sums_.weight_grad(all), sums_.weight_grad_fused(all));
  if (sums_.has_backward()) work = std::min(work, sums_.forward(all) + sums_.backward(all));
  return work * setting_->micro_batches / setting_->site.speed(costs_.ranks);
}

LayerSums Candidates::sums_of(const Outcome& outcome) const {
  if (outcome.recomputed.empty()) return sums_;
  return {with_recompute(costs_, outcome.recomputed), setting_->micro_batches, setting_->site};
}

StageCosts Candidates::costs_of(const LayerSums& sums, const std::vector<Rank>& rank_of_stage,
                                const Stages& stages) const {
  StageCosts costs = stage_costs(sums, rank_of_stage, stages);
  costs.reduce_overlaps = constraints_.overlaps_reduction;
  return costs;
}

/// The number of live micro-batches per rank that the memory and the memory limit permit.
std::vector<int> Candidates::fitting_in_both(const Schedule& instructions, const Outcome& outcome) const {
  std::vector<double> left;
  for (Rank rank(0); rank.value() < instructions.rank_count(); rank = rank.next()) left.push_back(cap(rank));
  for (std::size_t s = 0; s < outcome.stages.size(); ++s)
    left[instructions.rank_of_stage[s].index()] -= held_throughout(sums_, outcome.stages[s]);
  std::vector<int> fitting = contexts_within(instructions, outcome.costs, left);
  if (!constraints_.memory_limit) return fitting;
  const std::vector<int> limit = activation_limit(instructions, *constraints_.memory_limit, outcome.costs);
  for (std::size_t rank = 0; rank < limit.size(); ++rank) fitting[rank] = std::min(fitting[rank], limit[rank]);
  return fitting;
}

/// Sets Candidate::prediction, Candidate::fits and Candidate::needed_limit.
void Candidates::predict(Outcome& outcome) const {
  Candidate& candidate = outcome.candidate;
  const Schedule schedule = schedule_of(outcome);
  candidate.prediction.memory_bytes = rank_bytes(*setting_, sums_of(outcome), schedule, outcome);
  candidate.fits = true;
  for (Rank rank(0); rank.value() < schedule.rank_count(); rank = rank.next())
    candidate.fits = candidate.fits && candidate.prediction.memory_bytes[rank.index()] <= cap(rank);
  if (const auto limit = constraints_.memory_limit) {
    candidate.needed_limit = needed_memory_limit(schedule, *limit, outcome.costs);
    candidate.fits = candidate.fits && is_within_limit(schedule, *limit, outcome.costs);
  }
  if (candidate.fits) report_time(simulate(schedule, outcome.costs), candidate.prediction);
}

/// `instructions` state the placement.
Outcome Candidates::outcome_of(const Attempt& attempt, const Schedule& instructions, WeightGradients mode,
                               const StagePartition& partition) const {
  Outcome outcome{.candidate = {.schedule = attempt.name(),
                                .chunks = attempt.shape.chunks,
                                .micro_batches = attempt.shape.micro_batches,
                                .ranks = attempt.shape.ranks,
                                .replicas = setting_->replicas,
                                .memory_limit = limit_of(attempt),
                                .weight_gradients = mode,
                                .partition = partition.kind,
                                .is_exact = partition.is_exact,
                                .fits = false,
                                .prediction = {}},
                  .attempt = attempt,
                  .stages = partition.stages,
                  .costs = costs_of(sums_, instructions.rank_of_stage, partition.stages),
                  .setting = setting_};
  predict(outcome);
  return outcome;
}

/// The candidate with the best partition. The partitions are made for the memory of `base`; the schedule of a
/// generator that adapts to costs may need more or less.
Outcome Candidates::best_of(const Attempt& attempt, const Schedule& base, WeightGradients mode) {
  const Schedule instructions = with_weights(base, mode);
  std::vector<Outcome> outcomes;
  const auto consider = [&](const StagePartition& partition) {
    outcomes.push_back(outcome_of(attempt, instructions, mode, partition));
  };
  const bool is_given = !constraints_.stages.empty();
  if (is_given)
    consider({PartitionKind::given, /*is_exact=*/true, ranges_of(constraints_.stages, costs_)});
  else
    for (const StagePartition& partition : partitioner_.partitions(instructions)) consider(partition);
  if (!is_given &&
      std::none_of(outcomes.begin(), outcomes.end(), [](const Outcome& outcome) { return outcome.candidate.fits; }))
    consider(partitioner_.smallest(instructions));
  put_in_order(outcomes);
  return std::move(outcomes.front());
}

/// The candidate with grouped weight gradients and the partition of `outcome`, the best one in stream mode; none if
/// the memory is too small even for single W's.
std::optional<Outcome> Candidates::grouped_within_cap(Outcome outcome) const {
  if (!outcome.candidate.fits) return std::nullopt;
  const Schedule instructions = schedule_of(outcome);
  const std::vector<int> limit = fitting_in_both(instructions, outcome);
  const std::vector<int> least = smallest_fuse_limit(instructions);
  for (std::size_t rank = 0; rank < limit.size(); ++rank)
    if (limit[rank] < least[rank]) return std::nullopt;
  outcome.candidate.weight_gradients = WeightGradients::grouped;
  predict(outcome);
  return outcome;
}

/// `outcome` with as many recomputed blocks as it needs to fit; none if it fits without, or never.
std::optional<Outcome> Candidates::recomputing(Outcome outcome) const {
  if (outcome.candidate.fits) return std::nullopt;
  while (true) {
    const auto of_rank = stages_of_ranks(schedule_of(outcome), outcome.stages);
    bool grows = false;
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank)
      if (outcome.candidate.prediction.memory_bytes[rank] > cap(Rank(static_cast<std::int32_t>(rank))))
        grows = recompute_one_more(costs_, of_rank[rank], outcome.recomputed) || grows;
    if (!grows) return std::nullopt;
    outcome.costs = costs_of(sums_of(outcome), schedule_of(outcome).rank_of_stage, outcome.stages);
    predict(outcome);
    if (!outcome.candidate.fits) continue;
    outcome.candidate.recomputed = names_of(costs_, outcome.recomputed);
    return outcome;
  }
}

Outcome Candidates::improved(Outcome outcome, int most) const {
  const std::vector<int> begins = possible_begins(blocks_of(costs_), static_cast<int>(outcome.stages.size()));
  const Schedule placed = schedule_of(outcome);
  const auto moved = [&](std::size_t s, int step) -> std::optional<Outcome> {
    const auto at = std::ranges::find(begins, outcome.stages[s].begin);
    if (at == begins.end() || (step < 0 && at == begins.begin()) || (step > 0 && at + 1 == begins.end()))
      return std::nullopt;
    Outcome other = outcome;
    other.stages[s].begin = other.stages[s - 1].end = *(at + step);
    if (other.stages[s].begin >= other.stages[s].end || other.stages[s - 1].begin >= other.stages[s - 1].end)
      return std::nullopt;
    other.candidate.partition = PartitionKind::improved;
    other.costs = costs_of(sums_of(other), placed.rank_of_stage, other.stages);
    const bool is_grouped = other.candidate.weight_gradients == WeightGradients::grouped;
    if (is_grouped) other.candidate.weight_gradients = WeightGradients::stream;  // single W's have to fit first
    predict(other);
    return is_grouped ? grouped_within_cap(std::move(other)) : std::move(other);
  };
  for (bool is_shorter = true; is_shorter;) {
    is_shorter = false;
    for (std::size_t s = 1; s < outcome.stages.size(); ++s)
      for (const int step : {-1, 1}) {
        if (most-- <= 0) return outcome;
        const auto other = moved(s, step);
        if (!other || !other->candidate.fits ||
            other->candidate.prediction.makespan >= outcome.candidate.prediction.makespan * (1 - 1e-9))
          continue;
        outcome = *other;
        is_shorter = true;
      }
  }
  return outcome;
}

}  // namespace penstock
