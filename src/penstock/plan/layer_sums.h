// Derives the costs of stages from the costs of layers at a given m, and scales the costs of layers to a measured run.
// Inside this module only.
#pragma once

#include <vector>

#include "penstock/plan/layer_costs.h"
#include "penstock/plan/partition_search.h"
#include "penstock/plan/site.h"
#include "penstock/schedule/schedule.h"

namespace penstock {

/// The mix of instructions by which a schedule computes gradients. The total cost of a micro-batch depends on it.
struct GradientInstructions {
  double unsplit = 0;  // the share of backward passes that are a B; the others are an I and a W
  double fused = 0;    // the share of W work at the cost of a W over the whole step; the rest is single W's

  friend auto operator<=>(const GradientInstructions&, const GradientInstructions&) = default;
};

GradientInstructions gradient_instructions(const Schedule& schedule);

/// Sums of costs over ranges of layers, each in constant time, for one micro-batch unless said otherwise. Times and
/// activation bytes are proportional to the micro-batch size. If m does not divide the samples, times are those of the
/// mean micro-batch size and activation bytes those of the largest one.
class LayerSums {
 public:
  /// For equal ranks, as the costs describe them.
  LayerSums(const LayerCosts& costs, int micro_batches) : LayerSums(costs, micro_batches, Site(costs)) {}
  LayerSums(const LayerCosts& costs, int micro_batches, const Site& site);

  const Site& site() const { return site_; }
  int layers() const { return static_cast<int>(forward_.size()) - 1; }
  double forward(LayerRange range) const { return sum(forward_, range); }
  double input_grad(LayerRange range) const { return is_split(range) ? sum(input_grad_, range) : 0; }
  double weight_grad(LayerRange range) const { return is_split(range) ? sum(weight_grad_, range) : backward(range); }
  /// The share of one micro-batch in a W over the whole step; use only if has_fused().
  double weight_grad_fused(LayerRange range) const {
    return is_split(range) ? sum(weight_grad_fused_, range) : backward(range);
  }
  /// B; I and W together if no layer has_backward().
  double backward(LayerRange range) const { return sum(backward_, range); }
  /// Once per step.
  double update(LayerRange range) const { return sum(update_, range); }
  /// True if any layer has a cost for a fused W, for a B that is not split, or for its update.
  bool has_fused() const { return has_fused_; }
  bool has_backward() const { return has_backward_; }
  bool has_update() const { return update_.back() > 0; }
  /// The time of F, and of I and W or B in the mix `instructions`, without the update.
  double work(LayerRange range, const GradientInstructions& instructions) const;
  /// The same with 1/m of the update.
  double work_and_update(LayerRange range, const GradientInstructions& instructions) const {
    return work(range, instructions) + update(range) / micro_batches_;
  }
  double activation_bytes(LayerRange range) const { return sum(activation_bytes_, range); }
  double parameter_bytes(LayerRange range) const { return sum(parameter_bytes_, range); }
  double weight_share() const { return weight_share_; }
  double instruction_overhead() const { return instruction_overhead_; }
  const StepTerms& terms() const { return terms_; }
  bool has_cache() const { return cache_bytes_ > 0; }
  /// StageCosts::forward_cache_saving and the like for a stage with the layers `range`; 0 without a cache.
  double forward_cache_saving(LayerRange range) const {
    return sum(forward_cache_saving_, range) * newly_cached_share(range);
  }
  double input_grad_cache_saving(LayerRange range) const {
    return sum(input_grad_cache_saving_, range) * newly_cached_share(range);
  }
  double weight_grad_cache_saving(LayerRange range) const;
  /// The bytes that replicas sum.
  double gradient_bytes(LayerRange range) const { return sum(gradient_bytes_, range); }
  /// The message of the boundary before `layer` from one rank to another; its bytes occupy the link.
  MessageCost message(int layer, const LinkSpeed& link) const { return message_over(link, boundary_bytes(layer)); }
  /// The buffers of a stage on a rank of its own: a value and a gradient at each end.
  double message_buffers(LayerRange range) const {
    return 2 * (boundary_bytes(range.begin) + (range.end < layers() ? boundary_bytes(range.end) : 0));
  }
  double boundary_bytes(int layer) const { return boundary_bytes_[static_cast<std::size_t>(layer)]; }

 private:
  using Sums = std::vector<double>;  // prefix sums: over the first 0, 1, 2, ... layers

  static double sum(const Sums& sums, LayerRange range) {
    return sums[static_cast<std::size_t>(range.end)] - sums[static_cast<std::size_t>(range.begin)];
  }

  /// LayerCosts::first_stage_splits, for the stage `range`.
  bool is_split(LayerRange range) const { return first_stage_splits_ || range.begin > 0; }
  /// The share of so many bytes that stays in the cache.
  double cached_share(double bytes) const { return bytes > cache_bytes_ ? cache_bytes_ / bytes : 1; }
  /// The measured times of F and I, which use half of parameter_bytes, are those of a rank that runs all of its layers
  /// one after the other. Of the bytes that do not stay in the cache then, this is the share that does if the rank's
  /// stage is `range`.
  double newly_cached_share(LayerRange range) const;

  Sums forward_, input_grad_, weight_grad_, weight_grad_fused_, backward_, update_, forward_cache_saving_,
      input_grad_cache_saving_, activation_bytes_, parameter_bytes_, gradient_bytes_;
  std::vector<double> boundary_bytes_;  // before each layer, and after the last one
  double weight_share_;
  double instruction_overhead_;
  StepTerms terms_;
  double cache_bytes_;
  int ranks_;
  int micro_batches_;
  Site site_;
  bool first_stage_splits_;
  bool has_fused_ = false;
  bool has_backward_ = false;
};

/// The input of simulate() and the generators: times of stages on their ranks, messages on the links between them,
/// and the slowest of these as StageCosts::message.
StageCosts stage_costs(const LayerSums& sums, const std::vector<Rank>& rank_of_stage, const Stages& stages);

/// The peak of the activations of one rank in bytes, rounded up. `stages` has the layers of the rank's stages, or of
/// the first few of them.
double activation_bytes(const LayerSums& sums, const LiveContexts& live, std::span<const LayerRange> stages);

/// What a stage holds all the time: its parameters and, on a cluster, the buffers of messages.
double held_throughout(const LayerSums& sums, LayerRange stage);

/// Both together.
double memory_bytes(const LayerSums& sums, const LiveContexts& live, std::span<const LayerRange> stages);

/// One entry per rank.
std::vector<double> memory_bytes(const LayerSums& sums, const Schedule& schedule, const Stages& stages);

/// A run: its compute instructions, the layers of its stages and the measured times of its instructions.
struct MeasuredRun {
  const Schedule& instructions;
  const Stages& stages;
  const StageCosts& costs;  // measured_costs() of the trace, with one entry per stage; milliseconds
};

/// `costs` scaled to the size of micro-batches and the speed of `run`. For each kind of instruction, the times of a
/// stage's layers are multiplied by the measured time of the stage divided by their sum (I and W together if B is not
/// split); the costs of the link are scaled in the same way. With the result, the costs of the run's own partition are
/// the measured ones, and those of other partitions are in the same unit. If the layers of a stage all cost 0, they get
/// equal shares of the measured time.
LayerCosts calibrated(const LayerCosts& costs, const MeasuredRun& run);

}  // namespace penstock
