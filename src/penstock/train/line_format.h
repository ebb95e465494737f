// Numbers in lines for people. Inside this module only.
#pragma once

#include <cstdio>
#include <string>

namespace penstock {

template <class... Values>
std::string format_line(const char* pattern, Values... values) {
  char line[256];
  std::snprintf(line, sizeof(line), pattern, values...);
  return line;
}

/// `2500 samples/s`, and `, 160000 tokens/s` where there are more targets than samples.
std::string rates(double samples, double targets, double seconds);

}  // namespace penstock
