// Which ranks share a machine: its steady clock, its cores and its caches. Torch-free.
#pragma once

#include <cstdint>

#include "penstock/transport/launch_environment.h"

namespace penstock {

/// The variable that makes a process take itself for one of another host: for tests on one machine.
inline constexpr const char* host_variable = "PENSTOCK_HOST";

/// A number that the processes of one host have in common, and no others: from the kernel's identity of its present
/// boot, which containers share as they share the clock; where Linux does not tell it, from the host's name. Never 0.
std::uint64_t host_id(const Environment& environment);

/// The same, of this process.
std::uint64_t host_id();

}  // namespace penstock
