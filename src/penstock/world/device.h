// The device that a rank computes on.
#pragma once

#include <optional>
#include <string>

#include <c10/core/Device.h>

namespace penstock {

/// The device called `name`: "cpu"; "cuda" or "cuda:1"; another type that this program has registered with LibTorch;
/// none for "auto". Throws ConfigError for another name.
std::optional<c10::Device> device_named(const std::string& name);

/// `wanted`, or if it is none, CUDA if this process finds a GPU, else the CPU.
c10::Device resolved_device(const std::optional<c10::Device>& wanted);

/// The device of one rank: `wanted` if it has an index, else the device of its type with number local_rank mod the
/// number of devices. `local_rank` counts the ranks of one host. Throws ConfigError for a device that does not exist.
c10::Device device_of(c10::Device wanted, int local_rank);

/// The number of `world_rank` among the ranks of its host: the launcher's local rank, or, without a launcher, the world
/// rank itself.
int local_rank_of(int world_rank);

}  // namespace penstock
