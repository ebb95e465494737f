// Identifies the host of a process: ranks of one host share its steady clock, cores and caches. Torch-free.
#pragma once

#include <cstdint>

#include "penstock/transport/launch_environment.h"

namespace penstock {

/// The environment variable that overrides the host identity, to emulate several hosts on one machine in tests.
inline constexpr const char* host_variable = "PENSTOCK_HOST";

/// A number that is the same for all processes of a host and differs between hosts. It is a hash of the kernel's boot
/// id, which containers share as they share the clock, or of the host's name where the boot id is not readable. Never
/// 0.
std::uint64_t host_id(const Environment& environment);

/// The same for this process.
std::uint64_t host_id();

}  // namespace penstock
