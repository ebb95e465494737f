#include "penstock/transport/processes/wire_buffer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

namespace penstock::processes {
namespace {

/// Sizes that differ by less than an eighth share a capacity.
std::size_t capacity_for(std::size_t bytes) {
  const std::size_t step = std::max(WireBuffer::unit, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

std::byte* allocate(std::size_t bytes) {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(WireBuffer::unit, bytes));
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

WireBuffer::WireBuffer(std::size_t bytes, std::shared_ptr<WireBufferPool> pool)
    : size_(std::max(padded(bytes), unit)), memory_(nullptr, Release{}) {
  const std::size_t capacity = capacity_for(size_);
  std::byte* memory = pool ? pool->take(capacity) : allocate(capacity);
  memory_ = {memory, Release{std::move(pool), capacity}};
  std::memset(memory + bytes, 0, size_ - bytes);
}

void WireBuffer::Release::operator()(std::byte* memory) const noexcept {
  if (pool)
    pool->give_back(memory, capacity);
  else
    std::free(memory);
}

WireBufferPool::~WireBufferPool() { free_down_to(0); }

std::size_t WireBufferPool::free_bytes() const {
  const std::lock_guard lock(mutex_);
  return free_bytes_;
}

std::uint64_t WireBufferPool::allocations() const {
  const std::lock_guard lock(mutex_);
  return allocations_;
}

std::byte* WireBufferPool::take(std::size_t capacity) {
  {
    const std::lock_guard lock(mutex_);
    used_bytes_ += capacity;
    most_used_bytes_ = std::max(most_used_bytes_, used_bytes_);
    Cached& cached = free_[capacity];
    cached.taken = ++takes_;
    if (!cached.memory.empty()) {
      std::byte* memory = cached.memory.back();
      cached.memory.pop_back();
      free_bytes_ -= capacity;
      return memory;
    }
    ++allocations_;
    free_down_to(2 * most_used_bytes_ - used_bytes_);
  }
  try {
    return allocate(capacity);
  } catch (const std::bad_alloc&) {
    const std::lock_guard lock(mutex_);
    used_bytes_ -= capacity;
    throw;
  }
}

void WireBufferPool::give_back(std::byte* memory, std::size_t capacity) noexcept {
  const std::lock_guard lock(mutex_);
  used_bytes_ -= capacity;
  try {
    free_[capacity].memory.push_back(memory);
    free_bytes_ += capacity;
  } catch (const std::bad_alloc&) {
    std::free(memory);
  }
}

void WireBufferPool::free_down_to(std::size_t bytes) {
  while (free_bytes_ > bytes) {
    const auto oldest = std::min_element(free_.begin(), free_.end(), [](const auto& one, const auto& other) {
      const auto rank = [](const Cached& cached) { return std::pair(cached.memory.empty(), cached.taken); };
      return rank(one.second) < rank(other.second);
    });
    for (std::vector<std::byte*>& memory = oldest->second.memory; free_bytes_ > bytes && !memory.empty();) {
      std::free(memory.back());
      memory.pop_back();
      free_bytes_ -= oldest->first;
    }
  }
}

}  // namespace penstock::processes
