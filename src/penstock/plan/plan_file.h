// Files of decisions: a plan (docs/plan_file.md), which `penstock plan` writes and `penstock train --plan` executes,
// and a record of the tuning cache (docs/tuning_file.md), with what was measured for a job and decided by it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/plan/layer_costs.h"
#include "penstock/schedule/instruction.h"
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
  int replicas = 1;                              // d
  std::vector<std::string> devices = {};    // of a cluster, by world rank (pipeline rank * d + replica); may be empty
  std::vector<std::string> recompute = {};  // blocks, and layers outside of blocks
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

/// A candidate and the measured time of its step, in ms.
struct MeasuredCandidate {
  std::string candidate;  // for people, as describe() names it
  double step_ms = 0;

  friend bool operator==(const MeasuredCandidate&, const MeasuredCandidate&) = default;
};

struct TuningRecord {
  std::string key;          // lines of text: everything that the measurements depend on
  std::string measured_at;  // "2026-11-23 02:15:50 UTC"
  int micro_batches = 1;    // m
  std::string partition;    // PipelineOptions::partition
  std::string kernels;      // PipelineOptions::kernel_selection; may be empty
  std::vector<MeasuredCandidate> steps = {};
  /// The decision and the costs of the layers of the schedule "auto"; none of another schedule.
  std::optional<Plan> plan = {};
  std::optional<LayerCosts> costs = {};

  friend bool operator==(const TuningRecord&, const TuningRecord&) = default;
};

/// Reads a file strictly. Throws DataError, which names the member and its possible values, and ScheduleError if the
/// schedule in it is invalid.
TuningRecord read_tuning_record(std::string_view text);
/// The text of a file; read_tuning_record(write_tuning_record(x)) == x. Throws DataError or ScheduleError for a record
/// that read_tuning_record() would refuse.
std::string write_tuning_record(const TuningRecord& record);

}  // namespace penstock
