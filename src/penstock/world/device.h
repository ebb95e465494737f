// Where a rank computes.
#pragma once

#include <string>

#include <c10/core/Device.h>

namespace penstock {

/// "cpu"; "cuda": the rank's GPU, ranks going round those of their host; "cuda:1": that GPU for every rank; "auto": as
/// "cuda" where there is a GPU, else as "cpu". `local_rank` counts the ranks of one host. Throws ConfigError for
/// another name, and for a GPU that is not there.
c10::Device device_of(const std::string& wanted, int local_rank);

/// What "auto" comes to in this process, "cuda" or "cpu"; any other name as it is.
std::string resolved_device(const std::string& wanted);

/// The number of `world_rank` among the ranks of its host: as the launcher says, else the rank itself (one host).
int local_rank_of(int world_rank);

}  // namespace penstock
