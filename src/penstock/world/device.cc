#include "penstock/world/device.h"

#include <charconv>
#include <cstring>
#include <optional>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/version.h>

#include "penstock/base/error.h"
#include "penstock/transport/launch_environment.h"

namespace penstock {
namespace {

/// `text` as a number; -1 where it is none.
int number_in(std::string_view text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : -1;
}

/// The number of devices of this type that LibTorch can use.
int count_of(c10::DeviceType type) {
  return c10::impl::hasDeviceGuardImpl(type) ? c10::impl::VirtualGuardImpl(type).deviceCount() : 0;
}

/// The type of devices with streams that has this name: CUDA, or another one that this program has registered.
std::optional<c10::DeviceType> type_called(const std::string& name) {
  try {
    const c10::DeviceType type = c10::Device(name).type();
    const bool has_streams = type == c10::kCUDA || (type != c10::kCPU && type != c10::kMeta && count_of(type) > 0);
    return has_streams ? std::optional(type) : std::nullopt;
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

}  // namespace

c10::Device device_of(const std::string& wanted, int local_rank) {
  const std::string name = resolved_device(wanted);
  if (name == "cpu") return c10::kCPU;
  const std::size_t colon = name.find(':');
  const bool any = colon == std::string::npos;
  const std::optional<c10::DeviceType> type = type_called(name.substr(0, colon));
  const int number = any ? 0 : number_in(std::string_view(name).substr(colon + 1));
  require<ConfigError>(type && number >= 0, "device '", wanted, "' is none of cpu, cuda, cuda:0, cuda:1, ... and auto");
  const int there = count_of(*type);
  require<ConfigError>(number < there, "device '", wanted, "' is asked for, but LibTorch ", TORCH_VERSION, " sees ",
                       there, there == 1 ? " GPU" : " GPUs", " here: take the device cpu");
  return {*type, static_cast<c10::DeviceIndex>(any ? local_rank % there : number)};
}

std::string resolved_device(const std::string& wanted) {
  if (wanted != "auto") return wanted;
  return count_of(c10::kCUDA) > 0 ? "cuda" : "cpu";
}

int local_rank_of(int world_rank) { return launched_local_rank().value_or(world_rank); }

}  // namespace penstock
