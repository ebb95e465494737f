#include <cstddef>
#include <cstdint>

#include "tests/fuzz/checkpoint_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::try_manifest(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
