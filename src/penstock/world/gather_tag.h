// The names of messages that bring something to rank 0.
#pragma once

#include <cstdint>

namespace penstock {

/// Names the messages of one gathering; `round` counts the gatherings of a pipeline.
struct GatherTag {
  std::uint32_t pipeline = 0;
  std::uint64_t round = 0;
};

}  // namespace penstock
