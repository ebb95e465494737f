// What was measured for one training job, and what was decided by it: a file of the tuning cache
// (docs/tuning_file.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/plan/layer_costs.h"
#include "penstock/plan/plan_file.h"

namespace penstock {

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
