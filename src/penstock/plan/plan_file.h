// The planner's decision and its file format (docs/plan_file.md): `penstock plan` writes it, `penstock train --plan`
// executes it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/schedule/order.h"
#include "penstock/schedule/weight_gradients.h"

namespace penstock {

/// The predicted time and memory of a step.
struct Prediction {
  double makespan = 0;         // in Plan::time_unit, as Simulation::makespan
  double bubble_makespan = 0;  // as in Simulation
  double bubble_span = 0;
  std::vector<double> peak_activations;  // per rank, as Simulation::peak_activations
  std::vector<double> memory_bytes;      // per rank: parameters and the peak of activations

  /// The rank that needs the most memory, the first of several. REQUIRES: memory_bytes is not empty.
  std::size_t fullest_rank() const {
    return static_cast<std::size_t>(std::ranges::max_element(memory_bytes) - memory_bytes.begin());
  }
  double most_bytes() const { return memory_bytes[fullest_rank()]; }

  friend bool operator==(const Prediction&, const Prediction&) = default;
};

struct Plan {
  std::string costs;                                           // fingerprint() of the costs from which it was made
  std::string time_unit;                                       // "ms"
  WeightGradients weight_gradients = WeightGradients::stream;  // of the schedule: not automatic
  std::string kernels = {};                                    // LayerCosts::kernels
  std::vector<std::vector<std::string>> stages;  // the layers of each stage, by name, in order of execution
  Prediction prediction;
  Schedule schedule;  // compute instructions only; lower() adds the messages for the model's links

  friend bool operator==(const Plan&, const Plan&) = default;
};

/// The partition of the plan in the format of --partition and PipelineOptions::partition: the first layer of each stage
/// but the first, separated by commas; "uniform" for one stage.
std::string partition_of(const Plan& plan);

/// Reads a plan file strictly. Throws DataError, which names the member and its possible values, and ScheduleError if
/// the schedule in it is invalid.
Plan read_plan(std::string_view text);
/// The text of a plan file; read_plan(write_plan(x)) == x. Throws DataError or ScheduleError for a plan that
/// read_plan() would refuse.
std::string write_plan(const Plan& plan);

}  // namespace penstock
