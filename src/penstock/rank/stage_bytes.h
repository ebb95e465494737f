// Measured activations of a stage.
#pragma once

#include <cstdint>
#include <string_view>

#include "penstock/base/ids.h"

namespace penstock {

/// Bytes of the activations of one micro-batch on one stage (rank/held_bytes.h), of the micro-batch with the most.
struct StageBytes {
  static constexpr std::string_view record_name = "StageBytes";  // sent to other ranks (transport/records.h)

  StageId stage;
  std::int64_t after_forward = 0;     // from F to B or I
  std::int64_t after_input_grad = 0;  // from I to W; 0 where no B was split
};

}  // namespace penstock
