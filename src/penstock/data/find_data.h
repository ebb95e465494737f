// Where data sets are, wherever a program was started. Torch-free.
#pragma once

#include <string>

namespace penstock {

/// The folder that holds the data set `set` ("mnist", "cifar10", "text"): $PENSTOCK_DATA where that is set; else the
/// first folder `data` or `shared/data` with a folder called `set` in it, looked for in the current folder and those
/// above it, then in the program's own and those above it. "data" where there is none, so that reading from it says
/// what is missing.
std::string find_data(const std::string& set);

}  // namespace penstock
