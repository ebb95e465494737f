// The device that a rank computes on.
#pragma once

#include <string>

#include <c10/core/Device.h>

namespace penstock {

/// The device for the name `wanted`. "cpu"; "cuda": the GPU with number local_rank mod the number of GPUs; "cuda:1":
/// that GPU for every rank; "auto": as "cuda" where there is a GPU, otherwise as "cpu". Other device types that are
/// registered with LibTorch are called by their names, as "cuda" is. `local_rank` counts the ranks of one host. Throws
/// ConfigError for another name, and for a GPU that does not exist.
c10::Device device_of(const std::string& wanted, int local_rank);

/// "cuda" or "cpu" for "auto", depending on this process's devices; any other name unchanged.
std::string resolved_device(const std::string& wanted);

/// The number of `world_rank` among the ranks of its host: the launcher's local rank, or, without a launcher, the world
/// rank itself.
int local_rank_of(int world_rank);

}  // namespace penstock
