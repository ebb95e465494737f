// Where the tests find the real data sets.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace penstock {

/// $PENSTOCK_DATA, else shared/data beside the source tree, else the source tree's own.
inline std::string real_data() {
  if (const char* chosen = std::getenv("PENSTOCK_DATA")) return chosen;
  const std::filesystem::path own(PENSTOCK_SOURCE_DATA), shared = own / "../../shared/data";
  std::error_code code;  // unreadable counts as absent
  return (std::filesystem::is_directory(shared, code) ? shared : own).string();
}

}  // namespace penstock
