// Finds data sets independently of the current folder. Free of LibTorch.
#pragma once

#include <string>

namespace penstock {

/// Returns the folder of data sets that contains `set` ("mnist", "cifar10", "text"): $PENSTOCK_DATA if it is set; else
/// the first folder `data` with a folder `set` in it, searched in the current folder and its parents, then in the
/// folder of the program and its parents; else "data", so that the loading function reports what is missing.
std::string find_data(const std::string& set);

}  // namespace penstock
