// How much memory this process has.
#pragma once

#include <cstdint>

namespace penstock {

/// The most physical memory that the process has had so far.
std::int64_t peak_resident_bytes();
/// The physical memory that it has now; 0 where the system does not say.
std::int64_t resident_bytes();

}  // namespace penstock
