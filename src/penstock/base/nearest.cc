#include "penstock/base/nearest.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace penstock {
namespace {

/// The letters and digits in lower case.
std::string letters_of(std::string_view name) {
  std::string letters;
  for (const char c : name)
    if (c != '-' && c != '_') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

/// The edit distance of the letters, or 1 if `name` contains `known`. Two letters are contained by coincidence.
std::size_t distance_of_letters(const std::string& name, const std::string& known) {
  constexpr std::size_t shortest_part = 3;
  const std::size_t distance = edit_distance(name, known);
  const bool is_part = known.size() >= shortest_part && name.find(known) != std::string::npos;
  return is_part ? std::min<std::size_t>(distance, 1) : distance;
}

}  // namespace

std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::vector<std::size_t>> cost(from.size() + 1, std::vector<std::size_t>(to.size() + 1));
  for (std::size_t i = 0; i <= from.size(); ++i)
    for (std::size_t j = 0; j <= to.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const bool differ = from[i - 1] != to[j - 1];
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (differ ? 1 : 0)});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  return cost[from.size()][to.size()];
}

const std::string& nearest(std::string_view name, const std::vector<std::string>& names) {
  const std::string letters = letters_of(name);
  const auto distance = [&](const std::string& known) {
    return std::pair(distance_of_letters(letters, letters_of(known)), edit_distance(name, known));
  };
  return *std::min_element(names.begin(), names.end(),
                           [&](const std::string& a, const std::string& b) { return distance(a) < distance(b); });
}

}  // namespace penstock
