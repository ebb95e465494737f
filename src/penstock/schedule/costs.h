// What the instructions of a schedule cost: the numbers that simulate, the planner and cost-aware generators take.
#pragma once

#include <vector>

namespace penstock {

/// Per stage, in any one unit of time. A list of one value counts for all stages; those that say so may be empty.
struct Costs {
  std::vector<double> forward = {1};      // F
  std::vector<double> input_grad = {1};   // I
  std::vector<double> weight_grad = {1};  // W, per micro-batch
  std::vector<double> update = {0};       // REDUCE + NORM + STEP together, charged to STEP
  double message = 0;                     // C, per message
  /// The part of a micro-batch's activations that W still needs when I has run (the Zero Bubble paper's M_W / M_B, 0.37
  /// and 0.43 for its smaller models). 1: I frees nothing.
  double weight_share = 0.5;
  double overhead = 0;  // per F, B, I or W besides, once for a fused W: what fusing saves
  /// W, per micro-batch, where one W covers all m; empty: as weight_grad. A W over fewer of them lies between.
  std::vector<double> weight_grad_fused = {};
  std::vector<double> backward = {};  // B where it is not split; empty: I + W
  /// What an instruction right after another of its stage is spared, as the cache keeps what both use: the parameters from an
  /// F, I or B to an F or I, the gradients from a W or B to a W. A B is spared what its I and its W are.
  std::vector<double> forward_cache_saving = {0};
  std::vector<double> input_grad_cache_saving = {0};
  std::vector<double> weight_grad_cache_saving = {0};  // by a W over any number of micro-batches

  /// F = 1, B = 2 and no other cost: the unit of the papers' figures.
  static Costs unit() { return {}; }
};

/// Throws ConfigError for a list that is neither one cost for all `stages` nor one for each, for a cost that is
/// negative or above 1e15, and for a weight share outside of 0 to 1.
void require_costs_fit(const Costs& costs, int stages);

}  // namespace penstock
