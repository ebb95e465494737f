// Formats numbers in the lines of the console hooks. Internal to this module.
#pragma once

#include <cstdio>
#include <string>

namespace penstock {

/// std::snprintf into a string of at most 255 characters.
template <class... Values>
std::string format_line(const char* pattern, Values... values) {
  char line[256];
  std::snprintf(line, sizeof(line), pattern, values...);
  return line;
}

/// `2500 samples/s`, followed by `, 160000 tokens/s` if there are more targets than samples.
std::string rates(double samples, double targets, double seconds);

}  // namespace penstock
