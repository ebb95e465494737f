// NCCL, from a LibTorch for CUDA.
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "penstock/transport/c10d.h"
#include "penstock/transport/joined_processes.h"
#include "penstock/transport/transport.h"

namespace penstock {

bool nccl_available() { return true; }

DeviceGroups nccl_groups() {
  return {.name = "nccl",
          .device_type = c10::kCUDA,
          .make =
              [](const c10::intrusive_ptr<c10d::Store>& store, ProcessRank own) {
                using c10d::ProcessGroupNCCL;
                const auto options = ProcessGroupNCCL::Options::create();
                options->timeout = transport::c10d_time_limit;
                return c10::intrusive_ptr<c10d::Backend>(
                    c10::make_intrusive<ProcessGroupNCCL>(store, own.rank, own.size, options));
              },
          .needs_own_devices = true};
}

}  // namespace penstock
