// Where the examples find their data.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

/// $PENSTOCK_DATA where that is set; else shared/data beside the folder that the program runs in; else data within it.
inline std::string data_folder() {
  if (const char* chosen = std::getenv("PENSTOCK_DATA")) return chosen;
  return std::filesystem::is_directory("../shared/data") ? "../shared/data" : "data";
}
