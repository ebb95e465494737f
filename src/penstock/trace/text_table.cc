#include "penstock/trace/text_table.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace penstock {

std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.empty() ? 0 : rows.front().size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (i > 0) text += "  ";
      text += std::string(widths[i] - row[i].size(), ' ') + row[i];
    }
    text += '\n';
  }
  return text;
}

std::string percent(double share) { return fixed(100 * share, 1) + " %"; }

std::string fixed(double value, int decimals) {
  std::array<char, 400> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

}  // namespace penstock
