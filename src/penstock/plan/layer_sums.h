// From the costs of layers to the costs of stages, at the size of micro-batch that a step of m has. Inside this module
// only.
#pragma once

#include <vector>

#include "penstock/plan/layer_costs.h"
#include "penstock/plan/partition_search.h"
#include "penstock/schedule/schedule.h"

namespace penstock {

/// Which instructions a schedule uses for its gradients, as parts of all: what a micro-batch costs on the whole depends on it.
struct GradientInstructions {
  double unsplit = 0;  // of the backward passes: B; the rest are I and W
  double fused = 0;    // of the W's time: at the cost of a W over the whole step; the rest at that of single ones

  friend auto operator<=>(const GradientInstructions&, const GradientInstructions&) = default;
};

GradientInstructions gradient_instructions(const Schedule& schedule);

/// Sums over ranges of layers, each at once. Times grow with the size of a micro-batch; of samples that do not
/// divide by m the times are those of the mean micro-batch, the bytes those of the largest.
class LayerSums {
 public:
  LayerSums(const LayerCosts& costs, int micro_batches);

  int layers() const { return static_cast<int>(forward_.size()) - 1; }
  double forward(LayerRange range) const { return sum(forward_, range); }
  double input_grad(LayerRange range) const { return sum(input_grad_, range); }
  double weight_grad(LayerRange range) const { return sum(weight_grad_, range); }
  /// One of a W over the whole step; only where has_fused().
  double weight_grad_fused(LayerRange range) const { return sum(weight_grad_fused_, range); }
  /// B; only where has_backward().
  double backward(LayerRange range) const { return sum(backward_, range); }
  /// Once per step.
  double update(LayerRange range) const { return sum(update_, range); }
  /// Whether any layer says what a fused W, or a B that is not split, costs; and whether any update costs something.
  bool has_fused() const { return has_fused_; }
  bool has_backward() const { return has_backward_; }
  bool has_update() const { return update_.back() > 0; }
  /// What a micro-batch takes on the whole, in F, I and W or B as `words` say, without the update.
  double work(LayerRange range, const GradientInstructions& instructions) const;
  /// The same and its part of the update: what a step takes of a rank's time, per micro-batch.
  double work_and_update(LayerRange range, const GradientInstructions& instructions) const {
    return work(range, instructions) + update(range) / micro_batches_;
  }
  double activation_bytes(LayerRange range) const { return sum(activation_bytes_, range); }
  double parameter_bytes(LayerRange range) const { return sum(parameter_bytes_, range); }
  double weight_share() const { return weight_share_; }
  double instruction_overhead() const { return instruction_overhead_; }
  bool has_cache() const { return cache_bytes_ > 0; }
  /// Costs::forward_cache_saving and the like, of one stage; 0 without a cache.
  double forward_cache_saving(LayerRange range) const { return sum(forward_cache_saving_, range) * newly_kept(range); }
  double input_grad_cache_saving(LayerRange range) const {
    return sum(input_grad_cache_saving_, range) * newly_kept(range);
  }
  double weight_grad_cache_saving(LayerRange range) const;
  /// C, when the layers before and from `layer` on are on different ranks.
  double message(int layer) const { return message_[static_cast<std::size_t>(layer)]; }

 private:
  using Sums = std::vector<double>;  // of the first 0, 1, 2, ... layers

  static double sum(const Sums& sums, LayerRange range) {
    return sums[static_cast<std::size_t>(range.end)] - sums[static_cast<std::size_t>(range.begin)];
  }

  /// The part of so many bytes that stays in the cache.
  double kept(double bytes) const { return bytes > cache_bytes_ ? cache_bytes_ / bytes : 1; }
  /// The costs of F and I, which use half of parameter_bytes, are those with all of a rank's layers in turn: how much
  /// of what is not kept then is kept in a stage that is smaller.
  double newly_kept(LayerRange range) const;

  Sums forward_, input_grad_, weight_grad_, weight_grad_fused_, backward_, update_, forward_cache_saving_,
      input_grad_cache_saving_, activation_bytes_, parameter_bytes_;
  std::vector<double> message_;  // by layer
  double weight_share_;
  double instruction_overhead_;
  double cache_bytes_;
  int ranks_;
  int micro_batches_;
  bool has_fused_ = false;
  bool has_backward_ = false;
};

/// What simulate and the generators take. A message costs what the slowest link that crosses ranks needs: Costs knows
/// one figure for all.
Costs stage_costs(const LayerSums& sums, const std::vector<Rank>& rank_of_stage, const Stages& stages);

/// How many contexts each stage of a rank holds at the same time, in the order of the stages: the moments that no other
/// moment exceeds in every stage. A context counts 1 from its F to its B or I, and the weight share from I to W.
using LiveContexts = std::vector<std::vector<double>>;

/// By rank.
std::vector<LiveContexts> live_contexts(const Schedule& schedule, double weight_share);

/// Parameters and, at the worst moment, activations (rounded up) of one rank with the ranges `stages`, or with the
/// first few of them.
double memory_bytes(const LayerSums& sums, const LiveContexts& live, std::span<const LayerRange> stages);

/// By rank.
std::vector<double> memory_bytes(const LayerSums& sums, const Schedule& schedule, const Stages& stages);

}  // namespace penstock
