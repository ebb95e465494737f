// Tables for a terminal.
#pragma once

#include <string>
#include <vector>

namespace penstock {

/// One line per row, every column as wide as its widest instruction, instructions at the right of their column. Rows have equally
/// many instructions.
std::string aligned(const std::vector<std::vector<std::string>>& rows);

/// "12.50" for decimals = 2.
std::string fixed(double value, int decimals);

}  // namespace penstock
