#include "penstock/plan/cost_list.h"

#include <charconv>
#include <cmath>

#include "penstock/base/error.h"

namespace penstock {

std::vector<std::string_view> comma_separated(std::string_view list) {
  std::vector<std::string_view> items;
  for (std::size_t comma = list.find(','); comma != std::string_view::npos; comma = list.find(',')) {
    items.push_back(list.substr(0, comma));
    list.remove_prefix(comma + 1);
  }
  items.push_back(list);
  return items;
}

std::vector<double> parse_cost_list(std::string_view flag, std::string_view text) {
  std::vector<double> costs;
  for (const std::string_view item : comma_separated(text)) {
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
