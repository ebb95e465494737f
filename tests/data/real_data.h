// Where the tests find the real data sets.
#pragma once

#include <cstdlib>
#include <string>

namespace penstock {

/// $PENSTOCK_DATA, else the data folder of the source tree.
inline std::string real_data() {
  const char* chosen = std::getenv("PENSTOCK_DATA");
  return chosen ? chosen : PENSTOCK_SOURCE_DATA;
}

}  // namespace penstock
