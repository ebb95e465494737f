// The memory of this process, and a rank's share of the machine's cache.
#pragma once

#include <cstdint>

#include "penstock/transport/control_plane.h"

namespace penstock {

/// The largest amount of physical memory that the process has used so far.
std::int64_t peak_resident_bytes();
/// The physical memory that it uses now; 0 where the system does not report it.
std::int64_t resident_bytes();

/// A quarter of the largest cache of this machine's first processor, divided by the number of `ranks` that share it, in
/// bytes. The rest is used by activations, by streamed data and, in a virtual machine, by neighbours. A rule of thumb
/// that benchmarks/predicted-vs-measured supports. 0 where Linux does not report the caches.
std::int64_t cache_share(int ranks);

/// The number of the world's ranks on the host of `endpoint`'s rank.
int ranks_on_host(const ControlPlane& endpoint);

}  // namespace penstock
