// How much of the machine's cache a rank has.
#pragma once

#include <cstdint>

namespace penstock {

/// Half of the largest cache of this machine's first processor, over those of `ranks` that share it, in bytes: the other
/// half goes to activations and to what only passes through (a rule of thumb; benchmarks/predicted-vs-measured bears it
/// out). 0 where Linux does not tell. Virtual machines show what they were told, which neighbours may use too.
std::int64_t cache_share(int ranks);

}  // namespace penstock
