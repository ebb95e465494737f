// Finds the data of the examples, and ends them after an error.
#pragma once

#include <cstdlib>
#include <iostream>
#include <string>

#include <penstock/base/base.h>
#include <penstock/data/data.h>

/// $PENSTOCK_DATA if it is set; else the nearest folder `data` with this set, in the current folder or its parents, or
/// in the program's folder or its parents.
inline std::string data_folder(const std::string& set = "mnist") { return penstock::find_data(set); }

/// Prints the error and ends the program, with exit code 2 for misuse and 1 otherwise. Uses _Exit, because after a
/// failure a rank may still be computing, so its objects must not be destroyed.
[[noreturn]] inline int failed(const std::exception& error) {
  std::cout.flush();
  std::cerr << error.what() << std::endl;
  std::_Exit(dynamic_cast<const penstock::Misuse*>(&error) ? 2 : 1);
}
