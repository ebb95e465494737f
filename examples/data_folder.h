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

/// Says what went wrong and ends the program, with 2 for misuse and else 1. At once: after a failure a rank may still be
/// computing, and nothing that it uses may be torn down.
[[noreturn]] inline int failed(const std::exception& error) {
  std::cout.flush();
  std::cerr << error.what() << std::endl;
  std::_Exit(dynamic_cast<const penstock::Misuse*>(&error) ? 2 : 1);
}
