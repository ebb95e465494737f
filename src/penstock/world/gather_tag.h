// Identifies the messages of one gather operation.
#pragma once

#include <cstdint>

namespace penstock {

/// `round` counts the gather operations of a pipeline; the same on every rank.
struct GatherTag {
  std::uint32_t pipeline = 0;
  std::uint64_t round = 0;
};

}  // namespace penstock
