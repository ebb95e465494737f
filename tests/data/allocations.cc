// In a separate file: if gcc inlines these into callers, it warns about a mismatch of malloc and operator delete.
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
