// Replaces nccl.cc in a build without NCCL.
#include "penstock/base/error.h"
#include "penstock/transport/joined_processes.h"
#include "penstock/transport/transport.h"

namespace penstock {

bool nccl_available() { return false; }

DeviceGroups nccl_groups() {
  throw ConfigError(
      "built without NCCL (PENSTOCK_NCCL=OFF, or a LibTorch for the CPU): take a LibTorch for CUDA and configure again "
      "with -DPENSTOCK_NCCL=ON, or use --transport gloo, which carries tensors of GPUs through the memory of the host");
}

}  // namespace penstock
