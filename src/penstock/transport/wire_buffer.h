// Runs of bytes that travel, and the pool they come from. Torch-free.
//
// Fresh pages are the dearest part of a large message (4 MiB: 0.3 ms to carry, several to touch for the first
// time), and a pipeline sends the same sizes again and again: so buffers are used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace penstock {

class WireBufferPool;

/// Bytes that travel. Aligned to `unit`, and a multiple of it long. Goes back to its pool when it dies.
class WireBuffer {
 public:
  static constexpr std::size_t unit = 64;
  static constexpr std::size_t padded(std::size_t bytes) { return (bytes + unit - 1) / unit * unit; }

  /// Space for at least `bytes`, and one unit; the padding is zeroed, the rest is not. Without a pool.
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

/// Keeps the memory of dead buffers for later ones of about the same size. What it holds never exceeds the most
/// that buffers have used at one time. Thread-safe; lives as long as one of its buffers.
class WireBufferPool {
 public:
  WireBufferPool() = default;
  ~WireBufferPool();
  WireBufferPool(const WireBufferPool&) = delete;
  WireBufferPool& operator=(const WireBufferPool&) = delete;

  /// Bytes kept for later.
  std::size_t free_bytes() const;

 private:
  friend class WireBuffer;
  std::byte* take(std::size_t capacity);
  void give_back(std::byte* memory, std::size_t capacity) noexcept;
  void free_down_to(std::size_t bytes);  // REQUIRES: mutex_ is held

  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<std::byte*>> free_;  // by capacity
  std::size_t free_bytes_ = 0, used_bytes_ = 0, most_used_bytes_ = 0;
};

}  // namespace penstock
