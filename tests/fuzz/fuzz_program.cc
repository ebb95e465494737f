// One fuzzer: CMakeLists.txt defines its header and the function in it.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include FUZZ_HEADER

namespace {

struct Input {
  const std::uint8_t* data;
  std::size_t size;

  operator std::span<const std::uint8_t>() const { return {data, size}; }                    // NOLINT: implicitly
  operator std::string_view() const { return {reinterpret_cast<const char*>(data), size}; }  // NOLINT
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  penstock::FUZZ_FUNCTION(Input{data, size});
  return 0;
}
