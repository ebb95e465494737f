// Names the build of Penstock that a process runs.
#include "penstock/transport/joining/start.h"

#include <torch/version.h>

#include "penstock/base/error.h"
#include "source_digest.h"

namespace penstock::joining {

std::string_view source_digest() { return PENSTOCK_SOURCE_DIGEST; }

std::string build_identity() {
  return say("penstock ", PENSTOCK_VERSION, " (", source_digest(), ") with LibTorch ", TORCH_VERSION);
}

}  // namespace penstock::joining
