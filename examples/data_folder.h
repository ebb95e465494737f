// Where the examples find their data, and how they end without it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>

#include <penstock/base/base.h>

/// $PENSTOCK_DATA where that is set; else shared/data beside the folder that the program runs in; else data within it.
inline std::string data_folder() {
  if (const char* chosen = std::getenv("PENSTOCK_DATA")) return chosen;
  return std::filesystem::is_directory("../shared/data") ? "../shared/data" : "data";
}

/// Says what went wrong; the exit code.
inline int failed(const std::exception& error) {
  std::cerr << error.what() << "\n";
  return dynamic_cast<const penstock::Misuse*>(&error) ? 2 : 1;
}
