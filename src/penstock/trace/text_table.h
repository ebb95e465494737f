// Tables for a terminal.
#pragma once

#include <string>
#include <vector>

namespace penstock {

/// One line per row. Every column is as wide as its widest cell; cells are right-aligned. All rows must have as many
/// cells as the first one.
std::string aligned(const std::vector<std::vector<std::string>>& rows);

/// "12.50" for decimals = 2.
std::string fixed(double value, int decimals);
/// "12.5 %" for 0.125.
std::string percent(double share);

}  // namespace penstock
