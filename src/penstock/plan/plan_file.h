// What the planner decided, and the file that holds it: `penstock plan` writes it, `penstock train --plan` obeys it.
// docs/plan_file.md tells the form.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/schedule/order.h"

namespace penstock {

/// How the weight gradients of a step are computed.
enum class WeightMode {
  stream,   // one W, or a share of B, per micro-batch
  fused,    // one W per stage and step
  grouped,  // few W's per stage: as large as the memory cap lets them be
};

/// "stream", "fused", "grouped".
const char* to_string(WeightMode mode);

/// What a step is expected to cost.
struct Prediction {
  double makespan = 0;         // in Plan::time_unit, from the first start to the last end of all ranks
  double bubble_makespan = 0;  // idle share of rank time, as in simulate.h
  double bubble_span = 0;
  std::vector<double> peak_activations;  // by rank, as simulate counts them
  std::vector<double> memory_bytes;      // by rank: parameters, and activations at the worst moment

  friend bool operator==(const Prediction&, const Prediction&) = default;
};

struct Plan {
  std::string costs;      // fingerprint() of the costs that it was made from
  std::string time_unit;  // "ms"
  WeightMode weight_gradients = WeightMode::stream;
  std::string kernels = {};                      // LayerCosts::kernels
  std::vector<std::vector<std::string>> stages;  // the layers of each stage, by name, in order of execution
  Prediction prediction;
  Schedule schedule;  // compute instructions alone: lower() adds what the model's links ask for

  friend bool operator==(const Plan&, const Plan&) = default;
};

/// Where the plan partitions, as --partition and PipelineOptions::partition take it: the first layer of each stage but the first, with
/// commas between; "uniform" for one stage.
std::string partition_of(const Plan& plan);

/// Throws DataError, naming the member and what is possible, for anything that is not exactly the form, and ScheduleError
/// when the schedule in it cannot run.
Plan read_plan(std::string_view text);
/// read_plan(write_plan(x)) == x. Throws DataError or ScheduleError for a plan that read_plan would refuse.
std::string write_plan(const Plan& plan);

}  // namespace penstock
