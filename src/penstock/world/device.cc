#include "penstock/world/device.h"

#include <algorithm>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/version.h>

#include "penstock/base/error.h"
#include "penstock/transport/joining/launch_environment.h"

namespace penstock {
namespace {

/// The number of devices of this type that LibTorch can use.
int count_of(c10::DeviceType type) {
  return c10::impl::hasDeviceGuardImpl(type) ? c10::impl::VirtualGuardImpl(type).deviceCount() : 0;
}

/// Whether ranks can compute on devices of this type: the CPU, CUDA, or another type that this program has registered.
bool is_known(const c10::Device& device) {
  if (device.is_cpu()) return !device.has_index();
  return device.is_cuda() || (device.type() != c10::kMeta && count_of(device.type()) > 0);
}

}  // namespace

std::optional<c10::Device> device_named(const std::string& name) {
  if (name == "auto") return std::nullopt;
  std::optional<c10::Device> device;
  try {
    device = c10::Device(name);
  } catch (const c10::Error&) {  // its message contains stack frames
  }
  require<ConfigError>(device && is_known(*device), "device '", name,
                       "' is none of cpu, cuda, cuda:0, cuda:1, ... and auto");
  return device;
}

c10::Device resolved_device(const std::optional<c10::Device>& wanted) {
  return wanted.value_or(count_of(c10::kCUDA) > 0 ? c10::kCUDA : c10::kCPU);
}

c10::Device device_of(c10::Device wanted, int local_rank) {
  require<ConfigError>(is_known(wanted), "device '", wanted.str(), "' is none of cpu, cuda, cuda:0, cuda:1, ...");
  if (wanted.is_cpu()) return c10::kCPU;
  const int there = count_of(wanted.type());
  require<ConfigError>(std::max<int>(wanted.index(), 0) < there, "device '", wanted.str(),
                       "' is asked for, but LibTorch ", TORCH_VERSION, " sees ", there, there == 1 ? " GPU" : " GPUs",
                       " here: take the device cpu");
  return wanted.has_index() ? wanted : c10::Device(wanted.type(), static_cast<c10::DeviceIndex>(local_rank % there));
}

int local_rank_of(int world_rank) { return joining::launched_local_rank().value_or(world_rank); }

RankDevice::RankDevice(c10::Device device) : device_(device) {
  if (!device.is_cpu()) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

}  // namespace penstock
