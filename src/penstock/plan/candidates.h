// The planner's candidates for one choice of ranks, replicas, devices and micro-batches. Inside this module only.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "penstock/plan/candidate.h"
#include "penstock/plan/constraints.h"
#include "penstock/plan/layer_sums.h"
#include "penstock/plan/recompute.h"
#include "penstock/plan/site.h"
#include "penstock/plan/stage_partitioner.h"

namespace penstock {

/// What a candidate's pipeline runs on.
struct PlanSetting {
  LayerCosts costs;     // `ranks` is p, and `samples` the share of one replica
  Placement placement;  // empty: the equal ranks of the costs
  Site site;
  int replicas = 1;
  int micro_batches = 1;
};

/// A generator with its settings, or a schedule of the user.
struct Attempt {
  const ScheduleGenerator* generator = nullptr;  // or `own`
  ScheduleShape shape;
  MemoryLimit memory_limit = TimesOf1F1B{1};
  const Schedule* own = nullptr;

  std::string name() const { return own ? own->name : std::string(generator->name); }
  /// The generator's schedule, without fused W's, or the user's.
  Schedule instructions(const StageCosts& costs) const {
    if (own) return *own;
    return generate(generator->name, shape, {.costs = costs, .memory_limit = memory_limit});
  }
};

/// A candidate, and the input from which its schedule can be generated again: the schedules of all candidates together
/// would need too much memory.
struct Outcome {
  Candidate candidate;
  Attempt attempt;
  Stages stages;
  StageCosts costs = {};  // of the stages
  Recomputed recomputed = {};
  std::shared_ptr<const PlanSetting> setting = {};
};

/// Sorts by time, then by memory; candidates that do not fit come last, by memory. Sums of the same costs in another
/// order differ in their last digits, so steps whose times round to the same multiple of the shortest count as equal.
void put_in_order(std::vector<Outcome>& outcomes);

/// Sets all members of `prediction` but memory_bytes.
void report_time(const Simulation& simulation, Prediction& prediction);

/// The layers of each stage as ranges. Throws ConfigError unless they are the layers of `costs`, in this order.
Stages ranges_of(const StageLayers& layers, const LayerCosts& costs);

/// Per rank, the bytes of parameters, activations, buffers of messages (only on the devices of a cluster) and of the
/// block that is being recomputed.
std::vector<double> rank_bytes(const PlanSetting& setting, const LayerSums& sums, const Schedule& schedule,
                               const Outcome& outcome);

class Candidates {
 public:
  /// `constraints` must outlive the candidates.
  Candidates(std::shared_ptr<const PlanSetting> setting, const PlanConstraints& constraints)
      : setting_(std::move(setting)),
        costs_(setting_->costs),
        constraints_(constraints),
        sums_(costs_, setting_->micro_batches, setting_->site),
        partitioner_(costs_, sums_, constraints.memory_limit) {}

  /// Adds the candidates of `attempt` in each mode to `outcomes`; if the fused one does not fit, also the grouped one,
  /// and the ones with recompute if PlanConstraints::recompute. `base` is the schedule of `attempt` with the costs of
  /// even stages, which shows the placement and the live micro-batches.
  void run(const Attempt& attempt, const Schedule& base, const std::vector<WeightGradients>& modes,
           std::vector<Outcome>& outcomes);

  Schedule schedule_of(const Outcome& outcome) const;

  /// `outcome` after moving boundaries between stages by one place as long as that shortens the step; at most `most`
  /// steps are simulated.
  Outcome improved(Outcome outcome, int most) const;

  /// No step is shorter: all work, divided by the speed of all ranks.
  double least_step() const;

 private:
  double cap(Rank rank) const { return setting_->site.memory(rank); }
  LayerSums sums_of(const Outcome& outcome) const;
  StageCosts costs_of(const LayerSums& sums, const std::vector<Rank>& rank_of_stage, const Stages& stages) const;
  std::vector<int> fitting_in_both(const Schedule& instructions, const Outcome& outcome) const;
  void predict(Outcome& outcome) const;
  Outcome outcome_of(const Attempt& attempt, const Schedule& instructions, WeightGradients mode,
                     const StagePartition& partition) const;
  Outcome best_of(const Attempt& attempt, const Schedule& base, WeightGradients mode);
  std::optional<Outcome> grouped_within_cap(Outcome outcome) const;
  std::optional<Outcome> recomputing(Outcome outcome) const;

  std::shared_ptr<const PlanSetting> setting_;
  const LayerCosts& costs_;
  const PlanConstraints& constraints_;
  LayerSums sums_;
  StagePartitioner partitioner_;
};

}  // namespace penstock
