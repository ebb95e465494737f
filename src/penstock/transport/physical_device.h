// Whether ranks of several processes have the same device.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

#include "penstock/transport/launch_environment.h"

namespace penstock {

/// A number that is the same for two processes where `device` of both is certainly one piece of hardware: on one host,
/// among processes that see each other, the same entry of CUDA_VISIBLE_DEVICES, or the same index where that is not
/// set. Numbers may differ although the hardware is the same, as between two containers.
std::uint64_t physical_device(c10::Device device, const Environment& environment);

/// The same for this process.
std::uint64_t physical_device(c10::Device device);

}  // namespace penstock
