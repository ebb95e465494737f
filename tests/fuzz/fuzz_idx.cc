#include <cstddef>
#include <cstdint>

#include "tests/fuzz/idx_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::try_idx({data, size});
  return 0;
}
