// Where the tests find the real data sets.
#pragma once

#include <cstdlib>
#include <string>

namespace penstock {

/// $PENSTOCK_DATA, else the source tree's own.
inline std::string real_data() {
  const char* chosen = std::getenv("PENSTOCK_DATA");
  return chosen ? chosen : TESTS_FOLDER "/../data";
}

}  // namespace penstock
