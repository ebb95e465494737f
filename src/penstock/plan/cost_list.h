// Costs as people write them on a command line.
#pragma once

#include <string_view>
#include <vector>

namespace penstock {

/// "1.5" or "1,2,1.5,...": finite, not negative. Throws ConfigError naming `flag`, the text and the position.
std::vector<double> parse_cost_list(std::string_view flag, std::string_view text);

}  // namespace penstock
