// How much of the machine's cache a rank has.
#pragma once

#include <cstdint>

#include "penstock/transport/transport.h"

namespace penstock {

/// A quarter of the largest cache of this machine's first processor, over those of `ranks` that share it, in bytes. The
/// rest goes to activations, to what only passes through and, in a virtual machine, to neighbours: a rule of thumb,
/// which benchmarks/predicted-vs-measured bears out. 0 where Linux does not tell.
std::int64_t cache_share(int ranks);

/// How many ranks of the world are on the host of `endpoint`'s.
int ranks_on_host(const Transport& endpoint);

}  // namespace penstock
