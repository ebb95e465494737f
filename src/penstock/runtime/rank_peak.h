// The most that a rank held.
#pragma once

#include <cstdint>

#include "penstock/base/ids.h"

namespace penstock {

struct RankPeak {
  WorldRank rank;
  int measured = 0;   // most live micro-batches since the pipeline was made
  int predicted = 0;  // as validate() counted them, for the same steps
  /// Most bytes that they held, but for the first training step: by a counter of what is allocated and given back,
  /// and predicted from one micro-batch's (runtime/held_bytes.h). 0 without PipelineOptions::count_bytes.
  std::int64_t measured_bytes = 0;
  std::int64_t predicted_bytes = 0;
  /// Physical memory of the process that holds the rank, now and at its most: of all ranks in it together, with all
  /// that they have and the libraries.
  std::int64_t resident_bytes = 0;
  std::int64_t peak_resident_bytes = 0;
};

}  // namespace penstock
