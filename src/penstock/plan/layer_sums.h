// From the costs of layers to the costs of stages, at the size of micro-batch that a step of m has. Inside this room
// only.
#pragma once

#include <vector>

#include "penstock/plan/layer_costs.h"
#include "penstock/plan/partition.h"
#include "penstock/schedule/schedule.h"

namespace penstock {

/// Sums over stretches of layers, each at once. Times grow with the size of a micro-batch; of samples that do not
/// divide by m the times are those of the mean micro-batch, the bytes those of the largest.
class LayerSums {
 public:
  LayerSums(const LayerCosts& costs, int micro_batches);

  int layers() const { return static_cast<int>(forward_.size()) - 1; }
  double forward(Stretch stretch) const { return sum(forward_, stretch); }
  double input_grad(Stretch stretch) const { return sum(input_grad_, stretch); }
  double weight_grad(Stretch stretch) const { return sum(weight_grad_, stretch); }
  /// F + I + W.
  double work(Stretch stretch) const { return forward(stretch) + input_grad(stretch) + weight_grad(stretch); }
  double activation_bytes(Stretch stretch) const { return sum(activation_bytes_, stretch); }
  double parameter_bytes(Stretch stretch) const { return sum(parameter_bytes_, stretch); }
  double weight_share() const { return weight_share_; }
  double word_overhead() const { return word_overhead_; }
  /// C, when the layers before and from `layer` on are on different ranks.
  double message(int layer) const { return message_[static_cast<std::size_t>(layer)]; }

 private:
  using Sums = std::vector<double>;  // of the first 0, 1, 2, ... layers

  static double sum(const Sums& sums, Stretch stretch) {
    return sums[static_cast<std::size_t>(stretch.end)] - sums[static_cast<std::size_t>(stretch.begin)];
  }

  Sums forward_, input_grad_, weight_grad_, activation_bytes_, parameter_bytes_;
  std::vector<double> message_;  // by layer
  double weight_share_;
  double word_overhead_;
};

/// What simulate and the generators take. A message costs what the slowest link that crosses ranks needs: Costs knows
/// one figure for all.
Costs stage_costs(const LayerSums& sums, const std::vector<Rank>& rank_of_stage, const Stages& stages);

/// How many contexts each stage of a rank holds at the same time, in the order of the stages: the moments that no other
/// moment exceeds in every stage. A context counts 1 from its F to its B or I, and the weight share from I to W.
using LiveContexts = std::vector<std::vector<double>>;

/// By rank.
std::vector<LiveContexts> live_contexts(const Schedule& schedule, double weight_share);

/// Parameters and, at the worst moment, activations (rounded up) of one rank with the stretches `stages`, or with the
/// first few of them.
double memory_bytes(const LayerSums& sums, const LiveContexts& live, std::span<const Stretch> stages);

/// By rank.
std::vector<double> memory_bytes(const LayerSums& sums, const Schedule& schedule, const Stages& stages);

}  // namespace penstock
