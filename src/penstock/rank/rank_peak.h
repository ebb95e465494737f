// Measured memory: the peaks of a rank, and the activations of a stage.
#pragma once

#include <cstdint>
#include <string_view>

#include "penstock/base/ids.h"

namespace penstock {

struct RankPeak {
  static constexpr std::string_view record_name = "RankPeak";  // sent to other ranks (transport/records.h)

  WorldRank rank;
  int measured = 0;   // largest number of live micro-batches since the pipeline was made
  int predicted = 0;  // the same as counted by validate() for the executed schedules
  /// Peak bytes of the live micro-batches, without the first training step: measured by observing allocations, and
  /// predicted from one micro-batch (rank/held_bytes.h). 0 without PipelineOptions::count_bytes.
  std::int64_t measured_bytes = 0;
  std::int64_t predicted_bytes = 0;
  /// Physical memory of the process that holds the rank, at present and at its peak: of all its ranks together,
  /// including the libraries.
  std::int64_t resident_bytes = 0;
  std::int64_t peak_resident_bytes = 0;
};

/// Bytes of the activations of one micro-batch on one stage (rank/held_bytes.h), of the micro-batch with the most.
struct StageBytes {
  static constexpr std::string_view record_name = "StageBytes";  // sent to other ranks (transport/records.h)

  StageId stage;
  std::int64_t after_forward = 0;     // from F to B or I
  std::int64_t after_input_grad = 0;  // from I to W; 0 if no B was split
};

}  // namespace penstock
