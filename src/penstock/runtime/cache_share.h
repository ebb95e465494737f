// How much of the machine's cache a rank has.
#pragma once

#include <cstdint>

namespace penstock {

/// Bytes of the largest cache of this machine's first processor, over those of `ranks` that share it: 0 where Linux
/// does not tell. Virtual machines show what they were told, which neighbours may use too.
std::int64_t cache_share(int ranks);

}  // namespace penstock
