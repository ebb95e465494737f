// Finds the known name that is most similar to a misspelt one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// The number of insertions, deletions, replacements and swaps of neighbouring characters that turn `from` into `to`.
std::size_t edit_distance(std::string_view from, std::string_view to);

/// The name that was most likely meant by `name`, for a message. Case, '-' and '_' make no difference, and a name that
/// `name` contains is close: NUM_MICRO_BATCHES is near micro-batches, zbv and ZBVZeroBubble are near zb-v. Of equally
/// close names the first with the smallest edit distance. `names` must not be empty and must outlive the result.
const std::string& nearest(std::string_view name, const std::vector<std::string>& names);

}  // namespace penstock
