#include <cstddef>
#include <cstdint>

#include "tests/fuzz/plan_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::try_layer_costs(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
