// What somebody meant who wrote a word that is none of those that are known.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// How many letters must be put in, left out, replaced or swapped with their neighbour to make `to` of `from`.
std::size_t edit_distance(std::string_view from, std::string_view to);

/// The one of `words`, at least one, with the smallest edit distance from `word`; the first of several.
const std::string& nearest(std::string_view word, const std::vector<std::string>& words);

}  // namespace penstock
