// Compares text with golden files. PENSTOCK_WRITE_GOLDENS=1 rewrites the files; do not edit them by hand.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace penstock {

inline std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void expect_golden(const std::string& path, const std::string& text) {
  if (std::getenv("PENSTOCK_WRITE_GOLDENS")) std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(content(path), text) << path << " differs; run with PENSTOCK_WRITE_GOLDENS=1 if that is meant";
}

}  // namespace penstock
