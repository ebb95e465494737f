#include "penstock/plan/cost_list.h"

#include <charconv>
#include <cmath>

#include "penstock/base/error.h"

namespace penstock {

std::vector<double> parse_cost_list(std::string_view flag, std::string_view text) {
  std::vector<double> costs;
  std::string_view rest = text;
  for (bool is_last = false; !is_last;) {
    const std::size_t comma = rest.find(',');
    is_last = comma == std::string_view::npos;
    const std::string_view item = rest.substr(0, comma);
    if (!is_last) rest.remove_prefix(comma + 1);

    double cost = 0;
    const auto [end, problem] = std::from_chars(item.data(), item.data() + item.size(), cost);
    const bool is_number = problem == std::errc() && end == item.data() + item.size();
    require<ConfigError>(is_number && std::isfinite(cost) && cost >= 0, flag, " ", text, ": cost ", costs.size() + 1,
                         " is '", item, "', which is no finite number >= 0; write costs as 1.5 or 1,2,1.5");
    costs.push_back(cost);
  }
  return costs;
}

}  // namespace penstock
