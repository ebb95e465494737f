// How much memory this process has held. Inside this room only.
#pragma once

#include <cstdint>

namespace penstock {

/// The most physical memory that the process has had so far.
std::int64_t peak_resident_bytes();

}  // namespace penstock
