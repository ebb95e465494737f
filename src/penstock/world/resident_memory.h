// The physical memory of this process.
#pragma once

#include <cstdint>

namespace penstock {

/// The largest amount of physical memory that the process has used so far.
std::int64_t peak_resident_bytes();
/// The physical memory that it uses now; 0 where the system does not report it.
std::int64_t resident_bytes();

}  // namespace penstock
