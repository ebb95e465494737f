// What the layers of a model cost, and the machine they are to run on: all that the planner goes by.
// docs/cost_file.md tells the form of the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// One layer, for one micro-batch of LayerCosts::micro_batch_size samples. Times are in LayerCosts::time_unit.
struct LayerCost {
  std::string name;
  double forward = 0;           // F
  double input_grad = 0;        // I
  double weight_grad = 0;       // W
  double activation_bytes = 0;  // kept from F to I, and a share of it to W
  double parameter_bytes = 0;   // with gradients and optimiser state; whatever the micro-batch
  double boundary_bytes = 0;    // handed to the next layer, and back as a gradient
  /// W per micro-batch where one W covers the whole step; none: as weight_grad.
  std::optional<double> weight_grad_fused = {};
  /// B where it is not split into I and W, and keeps nothing for later; none: input_grad + weight_grad.
  std::optional<double> backward = {};
  /// F and I where the cache keeps the layer's parameters from the instruction before; none: forward, input_grad.
  std::optional<double> forward_cached = {};
  std::optional<double> input_grad_cached = {};
  double update = 0;  // the optimiser's step for this layer: once per step, whatever the micro-batch

  friend bool operator==(const LayerCost&, const LayerCost&) = default;
};

/// What a message takes: latency + bytes / bytes_per_unit.
struct LinkSpeed {
  double bytes_per_unit = 0;  // bytes per unit of time; 0: bytes cost nothing
  double latency = 0;

  friend bool operator==(const LinkSpeed&, const LinkSpeed&) = default;
};

struct LayerCosts {
  std::string time_unit;              // "ms": for people
  int ranks = 1;                      // p
  std::int64_t samples = 1;           // in a step, whatever m
  std::int64_t micro_batch_size = 1;  // that the layers were measured at
  std::vector<int> micro_batches;     // m's to try; empty: samples / micro_batch_size, rounded up
  LinkSpeed link;
  double weight_share = 1;                 // of activation_bytes: what W still needs when I has run
  double instruction_overhead = 0;         // every F, B, I or W takes this besides, whatever its size
  double time_variation = 0;               // of an instruction's time: SimulateOptions::time_variation
  double cache_bytes = 0;                  // a rank's cache: docs/cost_file.md
  std::optional<double> memory_cap_bytes;  // per rank
  /// How much slower instructions run while all ranks compute than alone on the machine. The layers' figures hold it already:
  /// it is here for people.
  double slowdown_under_load = 1;
  /// The kernels that were timed, lines of text as PipelineOptions::kernel_selection has them, for who runs the plan:
  /// nothing here looks into them. Empty: the usual ones.
  std::string kernels = {};
  std::vector<LayerCost> layers;  // in order of execution

  friend bool operator==(const LayerCosts&, const LayerCosts&) = default;
};

/// Throws DataError, naming the member and what is possible, for anything that is not exactly the form.
LayerCosts read_layer_costs(std::string_view text);
/// read_layer_costs(write_layer_costs(x)) == x. Throws DataError for values that the form refuses.
std::string write_layer_costs(const LayerCosts& costs);

/// The m's to try: those listed, or the one that the measured micro-batch size gives.
std::vector<int> candidate_micro_batches(const LayerCosts& costs);

/// 16 hexadecimal digits that differ when any cost does: a plan carries those of the costs it was made from.
std::string fingerprint(const LayerCosts& costs);

}  // namespace penstock
