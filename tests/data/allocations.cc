// In a file of its own: inlined into callers, gcc takes malloc and operator delete for a mismatch.
#include "tests/data/allocations.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace penstock {

std::atomic<std::size_t> largest_allocation = 0;

}  // namespace penstock

void* operator new(std::size_t size) {
  penstock::largest_allocation = std::max<std::size_t>(penstock::largest_allocation, size);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
