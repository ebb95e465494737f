#include "penstock/transport/joining/build_identity.h"

#include <torch/version.h>

#include "penstock/base/error.h"
#include "source_digest.h"

namespace penstock {

std::string_view source_digest() { return PENSTOCK_SOURCE_DIGEST; }

std::string build_identity() {
  return say("penstock ", PENSTOCK_VERSION, " (", source_digest(), ") with LibTorch ", TORCH_VERSION);
}

// FNV-1a, because std::hash is another function in every standard library.
std::uint64_t build_number() {
  std::uint64_t number = 0xcbf29ce484222325;
  for (const char letter : build_identity()) number = (number ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return number;
}

}  // namespace penstock
