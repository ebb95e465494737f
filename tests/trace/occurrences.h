// Counts how often a text contains a part.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

inline int occurrences(const std::string& text, std::string_view part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace penstock
