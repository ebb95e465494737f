// Runs of bytes that travel, and the pool they come from. Torch-free.
//
// Fresh pages are the dearest part of a large message (4 MiB: 0.3 ms to carry, several to touch for the first
// time), and a pipeline sends the same sizes again and again: so frames are used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace penstock {

class FramePool;

/// Bytes that travel. Aligned to `unit`, and a multiple of it long. Goes back to its pool when it dies.
class Frame {
 public:
  static constexpr std::size_t unit = 64;
  static constexpr std::size_t padded(std::size_t bytes) { return (bytes + unit - 1) / unit * unit; }

  /// Room for at least `bytes`, and one unit; the padding is zeroed, the rest is not. Without a pool.
  explicit Frame(std::size_t bytes) : Frame(bytes, nullptr) {}
  /// The same, from `pool`.
  Frame(std::size_t bytes, std::shared_ptr<FramePool> pool);

  std::byte* data() const { return memory_.get(); }
  std::size_t size() const { return size_; }

 private:
  friend class FramePool;
  struct Release {
    std::shared_ptr<FramePool> pool;
    std::size_t capacity = 0;
    void operator()(std::byte* memory) const noexcept;
  };
  std::size_t size_ = 0;
  std::unique_ptr<std::byte, Release> memory_;
};

/// Keeps the memory of dead frames for later ones of about the same size. What it holds never exceeds the most
/// that frames have used at one time. Thread-safe; lives as long as one of its frames.
class FramePool {
 public:
  FramePool() = default;
  ~FramePool();
  FramePool(const FramePool&) = delete;
  FramePool& operator=(const FramePool&) = delete;

  /// Bytes kept for later.
  std::size_t free_bytes() const;

 private:
  friend class Frame;
  std::byte* take(std::size_t capacity);
  void give_back(std::byte* memory, std::size_t capacity) noexcept;
  void free_down_to(std::size_t bytes);  // REQUIRES: mutex_ is held

  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<std::byte*>> free_;  // by capacity
  std::size_t free_bytes_ = 0, used_bytes_ = 0, most_used_bytes_ = 0;
};

}  // namespace penstock
