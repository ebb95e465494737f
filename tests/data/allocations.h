// Measures allocations: linking allocations.cc replaces the program's operator new.
#pragma once

#include <atomic>
#include <cstddef>

namespace penstock {

/// The largest request since a test last set this to 0.
extern std::atomic<std::size_t> largest_allocation;

}  // namespace penstock
