// Where the examples find their data, and how they end without it.
#pragma once

#include <cstdlib>
#include <iostream>
#include <string>

#include <penstock/base/base.h>
#include <penstock/data/data.h>

/// $PENSTOCK_DATA where that is set; else the nearest data folder with this set, above the current folder or above the
/// program.
inline std::string data_folder(const std::string& set = "mnist") { return penstock::find_data(set); }

/// Says what went wrong and ends the program, with 2 for misuse and else 1. At once: after a failure a rank may still
/// be computing, and nothing that it uses may be torn down.
[[noreturn]] inline int failed(const std::exception& error) {
  std::cout.flush();
  std::cerr << error.what() << std::endl;
  std::_Exit(dynamic_cast<const penstock::Misuse*>(&error) ? 2 : 1);
}
