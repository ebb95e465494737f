// The input of the planner: the costs of a model's layers, and the properties of the machine (docs/cost_file.md has the
// file format); and the layers of each stage as a line of text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/schedule/stage_costs.h"

namespace penstock {

/// More micro-batches than any file of this module may name: a plan of them would not fit into memory.
inline constexpr std::int64_t most_micro_batches = std::int64_t{1} << 24;

/// The costs of one layer for one micro-batch of LayerCosts::micro_batch_size samples. Times are in
/// LayerCosts::time_unit.
struct LayerCost {
  std::string name;
  double forward = 0;           // F
  double input_grad = 0;        // I
  double weight_grad = 0;       // W
  double activation_bytes = 0;  // live from F to I, and LayerCosts::weight_share of them to W
  double parameter_bytes = 0;   // with gradients and optimiser state; does not depend on the micro-batch size
  double boundary_bytes = 0;    // the output to the next layer; its gradient has the same size
  /// W per micro-batch if one W covers the whole step; none: as weight_grad.
  std::optional<double> weight_grad_fused = {};
  /// B if it is not split into I and W; none: input_grad + weight_grad.
  std::optional<double> backward = {};
  /// F and I if the layer's parameters are still in the cache from the previous instruction; none: forward, input_grad.
  std::optional<double> forward_cached = {};
  std::optional<double> input_grad_cached = {};
  double update = 0;  // the optimiser's step for this layer, once per step; does not depend on the micro-batch size
  /// Of parameter_bytes: the gradients, which replicas sum, and the state of the optimiser, which replicas can divide.
  /// None: unknown, so that a plan takes a quarter of parameter_bytes for gradients (fp32 and Adam), and 0 for the state.
  std::optional<double> gradient_bytes = {};
  std::optional<double> optimizer_bytes = {};
  /// The block that contains the layer: stages do not begin inside (possible_begins()). Empty: none.
  std::string block = {};

  friend bool operator==(const LayerCost&, const LayerCost&) = default;
};

/// The time of a message is latency + bytes / bytes_per_unit.
struct LinkSpeed {
  double bytes_per_unit = 0;  // bytes per unit of time; 0: bytes cost nothing
  double latency = 0;

  friend bool operator==(const LinkSpeed&, const LinkSpeed&) = default;
};

struct LayerCosts {
  std::string time_unit;              // "ms"; for people
  int ranks = 1;                      // p
  std::int64_t samples = 1;           // per step, for all m
  std::int64_t micro_batch_size = 1;  // of the measured micro-batches, in samples
  std::vector<int> micro_batches;     // candidates for m; empty: samples / micro_batch_size, rounded up
  LinkSpeed link;
  double weight_share = 1;  // the share of activation_bytes that is saved for W after I has run
  /// The relative uncertainty of steps that are predicted from the times. The planner takes the simplest of the
  /// candidates within it of the shortest step (plan/candidate.h).
  double spread = 0;
  double instruction_overhead = 0;         // added to every F, B, I and W; does not depend on its size
  double cache_bytes = 0;                  // of a rank's cache (docs/cost_file.md)
  std::optional<double> memory_cap_bytes;  // per rank
  /// The time of instructions while all ranks compute, divided by their time on an idle machine. The layers' times
  /// include this factor already; it is used in reports only.
  double slowdown_under_load = 1;
  /// False: the I of the first stage takes no time, and its W takes as long as B. torch.distributed.pipelining does so.
  bool first_stage_splits = true;
  StepTerms terms = {};  // what a whole step adds to the layers' times; fit_terms() finds them
  /// The selection of kernels that were timed, in the format of PipelineOptions::kernel_selection. The planner copies
  /// it into the plan. Empty: the default kernels.
  std::string kernels = {};
  std::vector<LayerCost> layers;  // in order of execution

  friend bool operator==(const LayerCosts&, const LayerCosts&) = default;
};

/// Reads a cost file strictly. Throws DataError, which names the member and its possible values.
LayerCosts read_layer_costs(std::string_view text);
/// The text of a cost file; read_layer_costs(write_layer_costs(x)) == x. Throws DataError for values out of range.
std::string write_layer_costs(const LayerCosts& costs);

/// LayerCost::block of each layer.
std::vector<std::string> blocks_of(const LayerCosts& costs);

/// The candidates for m: those listed, or the one that follows from the measured micro-batch size. Throws ConfigError
/// if that is too large.
std::vector<int> candidate_micro_batches(const LayerCosts& costs);

/// A hash of all costs, 16 hexadecimal digits. A plan contains the hash of the costs from which it was made.
/// Throws like write_layer_costs().
std::string fingerprint(const LayerCosts& costs);

/// The names of optional settings of a trace that advise() reads: the layers of the stages in the format below, and the
/// text of a cost file (docs/cost_file.md) with all of these layers.
inline constexpr const char* layers_setting = "layers";
inline constexpr const char* layer_costs_setting = "layer_costs";

/// Per stage, the names of its layers in order of execution.
using StageLayers = std::vector<std::vector<std::string>>;

/// "embedding,block0;block1,head": semicolons separate stages, commas separate layers. Throws DataError for a name that
/// is empty or contains one of them, and for a stage without layers.
std::string write_stage_layers(const StageLayers& stages);
/// read_stage_layers(write_stage_layers(x)) == x. Throws DataError for malformed text.
StageLayers read_stage_layers(std::string_view text);

}  // namespace penstock
