// Reads costs per stage from a file (docs/schedule_format.md).
#pragma once

#include <string_view>

#include "penstock/schedule/stage_costs.h"

namespace penstock {

/// The version of the format, incremented when a file of the old format would be misread.
constexpr int stage_costs_version = 1;

/// Reads a text such as
///   {"penstock_costs": 1, "forward": [1, 2], "input_grad": [1, 2], "weight_grad": [1, 2], "update": [0]}
/// `update`, `message`, `weight_share`, `weight_grad_fused`, `backward` and `activation_bytes` may be left out; they
/// have the defaults of StageCosts then. Throws DataError, which names the member and its possible values, for any
/// deviation from the format.
StageCosts read_stage_costs(std::string_view text);

}  // namespace penstock
