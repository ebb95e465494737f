// Parses costs on the command line.
#pragma once

#include <string_view>
#include <vector>

namespace penstock {

/// "a,b" is a and b; one item more than there are commas. The items are parts of `list`.
std::vector<std::string_view> comma_separated(std::string_view list);

/// Parses "1.5" or "1,2,1.5,...", one cost for all stages or one for each. Costs must be finite and not negative,
/// without blanks. Throws ConfigError, which names `flag`, the text and the position in the list.
std::vector<double> parse_cost_list(std::string_view flag, std::string_view text);

}  // namespace penstock
