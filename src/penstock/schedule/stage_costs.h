// The costs of stages, and the times of instructions that follow from them. Stage costs are the input of simulate() and
// of generators that adapt to costs. Costs have three forms, each
// made from the one before: LayerCosts (plan/layer_costs.h), which do not depend on a partition; StageCosts, which do
// not depend on a schedule (stage_costs() in plan/layer_sums.h, or measured_costs() of a trace); and InstructionTimes.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "penstock/schedule/instruction.h"

namespace penstock {

/// A message between two ranks.
struct MessageCost {
  double time = 0;  // C, from its departure to its arrival
  /// The part of C in which it occupies the link between its two ranks, in its direction: the next one departs after it.
  /// 0: messages do not delay each other. (The gap of a long message, G per byte, in LogGP: Alexandrov, Ionescu,
  /// Schauser and Scheiman, 1995.)
  double gap = 0;
};

/// What surrounds the computations of a step. `penstock fit` decides these terms by measured steps (plan/fit_terms.h).
struct StepTerms {
  double slowdown = 0;    // F, B, I and W take 1 + slowdown times their costs in a whole step
  double send_share = 0;  // a message also occupies the rank that sends it, for this share of C, before it departs
  double per_step = 0;    // added to every step once: data loading, the all-reduce of the gradients' norm

  friend bool operator==(const StepTerms&, const StepTerms&) = default;
};

/// Times per stage, all in the same unit, which may be any unit of time. A list has one value for each stage, or one
/// value that applies to all stages. `weight_grad_fused` and `backward` may be empty.
struct StageCosts {
  std::vector<double> forward = {1};      // F
  std::vector<double> input_grad = {1};   // I
  std::vector<double> weight_grad = {1};  // W, per micro-batch
  std::vector<double> update = {0};       // REDUCE + NORM + STEP together, charged to STEP
  double message = 0;                     // MessageCost::time of every message
  double message_gap = 0;                 // MessageCost::gap of every message
  /// Messages that differ, in place of the two above: entry s is the message from stage s to s + 1, and the one from
  /// s + 1 back to s. A message that skips stages costs as much as the most expensive of the boundaries that it crosses.
  std::vector<MessageCost> messages_forward = {};
  std::vector<MessageCost> messages_backward = {};
  /// The sum of a stage's gradients over its replicas, between its last W and its update. It occupies the rank; with
  /// `reduce_overlaps` only the rank's link to the replicas, so that the rank goes on with other stages.
  std::vector<double> reduce = {0};
  bool reduce_overlaps = false;
  StepTerms terms = {};
  /// The share of a micro-batch's activations that is saved for W after I has run (M_W / M_B in the Zero Bubble paper,
  /// 0.37 and 0.43 for its smaller models). 1: I frees nothing.
  double weight_share = 0.5;
  double overhead = 0;  // added to every F, B, I and W; a fused W pays it once, which is what fusing saves
  /// W per micro-batch when one W covers all m micro-batches; empty: as weight_grad. For a W over a part of them
  /// simulate() interpolates.
  std::vector<double> weight_grad_fused = {};
  std::vector<double> backward = {};  // B that is not split; empty: I + W
  /// The time that caching saves when an instruction directly follows another one of its stage and both use the same
  /// data: the parameters, in an F or I after an F, I or B; the gradients, in a W after a W or B. A B saves what its I
  /// and its W would save.
  std::vector<double> forward_cache_saving = {0};
  std::vector<double> input_grad_cache_saving = {0};
  std::vector<double> weight_grad_cache_saving = {0};  // per W, over any number of micro-batches
  /// Bytes of the activations of one micro-batch, as large as its largest, from its F to its B or I. Empty: unknown;
  /// memory limits in bytes need them.
  std::vector<double> activation_bytes = {};

  /// F = 1, I = 1, W = 1 and no other cost: the unit of the papers' figures.
  static StageCosts unit() { return {}; }
};

/// The costs of stages that are each one of `parts` equal parts of these. A message costs what it does: its size stays.
/// Throws ConfigError for no parts.
StageCosts divided(StageCosts costs, int parts);

/// The value of a stage in a list of StageCosts that is not empty.
inline double value_of_stage(const std::vector<double>& list, std::size_t stage) {
  return list[list.size() == 1 ? 0 : stage];
}

/// Throws ConfigError for a list that has neither one cost nor `stages` costs, for a cost that is negative or above
/// 1e15, and for a weight share outside of 0 to 1.
void require_costs_fit(const StageCosts& costs, int stages);

/// The time of each instruction of a schedule, in the unit of the costs. Stages are given by their index.
class InstructionTimes {
 public:
  /// Of `schedule` only the numbers of stages and of micro-batches count, not its orders. Throws ConfigError like
  /// require_costs_fit().
  InstructionTimes(const StageCosts& costs, const Schedule& schedule);

  std::size_t stages() const { return stages_; }
  int micro_batches() const { return micro_batches_; }

  /// A compute instruction or STEP after `before`, the last compute instruction of its rank; 0 for other instructions.
  double operator()(const Instruction& instruction, const std::optional<Instruction>& before) const;

  /// F, I and W of one micro-batch if nothing is in the cache, and their sum.
  double forward(std::size_t stage) const { return uncached(costs_.forward, stage); }
  double input_grad(std::size_t stage) const { return uncached(costs_.input_grad, stage); }
  double weight_grad(std::size_t stage) const { return uncached(costs_.weight_grad, stage); }
  double micro_batch(std::size_t stage) const { return forward(stage) + input_grad(stage) + weight_grad(stage); }

  double update(std::size_t stage) const { return value_of_stage(costs_.update, stage); }
  double reduce(std::size_t stage) const { return value_of_stage(costs_.reduce, stage); }
  bool reduce_overlaps() const { return reduces_ && costs_.reduce_overlaps; }
  double per_step() const { return costs_.terms.per_step; }

  MessageCost message(StageId from, StageId to) const;
  /// The time that a message occupies the rank that sends it.
  double sending(StageId from, StageId to) const { return costs_.terms.send_share * message(from, to).time; }
  /// True if a step contains a reduction over replicas.
  bool reduces() const { return reduces_; }
  /// True if instructions that lower() adds have an effect on times.
  bool needs_lowering() const { return has_gaps_ || costs_.terms.send_share > 0 || reduces_; }

 private:
  double uncached(const std::vector<double>& list, std::size_t stage) const {
    return (1 + costs_.terms.slowdown) * (costs_.overhead + value_of_stage(list, stage));
  }
  double cache_saving(const Instruction& instruction, const std::optional<Instruction>& before) const;
  double backward(std::size_t stage) const;
  double grouped_weight_grad(std::size_t stage, int group) const;

  StageCosts costs_;
  std::size_t stages_;
  int micro_batches_;
  bool has_gaps_ = false;
  bool reduces_ = false;
};

}  // namespace penstock
