// Costs per stage as users write them: a list on the command line, or a cost file (docs/schedule_format.md).
#pragma once

#include <string_view>
#include <vector>

#include "penstock/schedule/stage_costs.h"

namespace penstock {

/// Parses "1.5" or "1,2,1.5,...", one cost for all stages or one for each. Costs must be finite and not negative,
/// without blanks. Throws ConfigError, which names `flag`, the text and the position in the list.
std::vector<double> parse_cost_list(std::string_view flag, std::string_view text);

/// The version of the format, incremented when a file of the old format would be misread.
constexpr int stage_costs_version = 1;

/// Reads a text such as
///   {"penstock_costs": 1, "forward": [1, 2], "input_grad": [1, 2], "weight_grad": [1, 2], "update": [0]}
/// `update`, `message`, `message_gap`, `weight_share`, `weight_grad_fused`, `backward`, `activation_bytes` and the members of StepTerms
/// may be left out; they have the defaults of StageCosts then. Throws DataError, which names the member and its possible values, for any
/// deviation from the format.
StageCosts read_stage_costs(std::string_view text);

}  // namespace penstock
