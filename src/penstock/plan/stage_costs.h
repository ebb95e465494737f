// Costs per stage from a file: docs/schedule_format.md tells the form.
#pragma once

#include <string_view>

#include "penstock/schedule/costs.h"

namespace penstock {

/// The number of the form: raised when a file of the old form would be misread.
constexpr int stage_costs_version = 1;

/// {"penstock_costs": 1, "forward": [1, 2], "input_grad": [1, 2], "weight_grad": [1, 2], "update": [0], "message": 0.1}
/// `update` and `message` may be left out: they are 0 then; so may `weight_share`,
/// `weight_grad_fused` and `backward` (Costs). Throws DataError, naming the
/// member and what is possible, for anything that is not exactly the form.
Costs read_stage_costs(std::string_view text);

}  // namespace penstock
