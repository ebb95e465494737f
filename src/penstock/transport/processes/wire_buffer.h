// Buffers of encoded messages, and the pool that reuses them. Torch-free.
//
// The first access to fresh pages is the most expensive part of a large message (for 4 MiB several ms, against 0.3 ms
// to carry it), and a pipeline sends the same sizes again and again. So buffers are reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace penstock::processes {

class WireBufferPool;

/// The bytes of one message. Aligned to `unit`, and a multiple of it long. Its memory returns to its pool in the
/// destructor. Movable, not copyable.
class WireBuffer {
 public:
  static constexpr std::size_t unit = 64;
  static constexpr std::size_t padded(std::size_t bytes) { return (bytes + unit - 1) / unit * unit; }

  /// Memory for at least `bytes`, and at least one unit, without a pool. The padding is zeroed, the rest is not.
  explicit WireBuffer(std::size_t bytes) : WireBuffer(bytes, nullptr) {}
  /// The same, from `pool`.
  WireBuffer(std::size_t bytes, std::shared_ptr<WireBufferPool> pool);

  std::byte* data() const { return memory_.get(); }
  std::size_t size() const { return size_; }

 private:
  friend class WireBufferPool;
  struct Release {
    std::shared_ptr<WireBufferPool> pool;
    std::size_t capacity = 0;
    void operator()(std::byte* memory) const noexcept;
  };
  std::size_t size_ = 0;
  std::unique_ptr<std::byte, Release> memory_;
};

/// Caches the memory of destroyed buffers for later ones of about the same size. Cached and used memory together never
/// exceed twice the most that buffers have used at one time: less would not do for sizes whose buffers are used at
/// different times, of which each would free the memory of the others. Where it must, it frees that of the size that
/// was not used for the longest time. Thread-safe; lives as long as one of its buffers.
class WireBufferPool {
 public:
  WireBufferPool() = default;
  ~WireBufferPool();
  WireBufferPool(const WireBufferPool&) = delete;
  WireBufferPool& operator=(const WireBufferPool&) = delete;

  /// Cached bytes.
  std::size_t free_bytes() const;
  /// How often memory was allocated, because none of the size was cached.
  std::uint64_t allocations() const;

 private:
  friend class WireBuffer;
  std::byte* take(std::size_t capacity);
  void give_back(std::byte* memory, std::size_t capacity) noexcept;
  void free_down_to(std::size_t bytes);  // REQUIRES: mutex_ is held

  struct Cached {
    std::vector<std::byte*> memory;
    std::uint64_t taken = 0;  // when one of this capacity was last taken, in number of takes
  };
  mutable std::mutex mutex_;
  std::map<std::size_t, Cached> free_;  // by capacity
  std::uint64_t takes_ = 0;
  std::size_t free_bytes_ = 0, used_bytes_ = 0, most_used_bytes_ = 0;
  std::uint64_t allocations_ = 0;
};

}  // namespace penstock::processes
