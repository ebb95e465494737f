// Numbers that the host computes for each step, in memory of a device. Work that is captured once and replayed in every
// step (base/device_graph.h) would otherwise repeat those of its first step: keys of dropout masks, factors of losses.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include <torch/types.h>

namespace penstock {

/// Throws ConfigError: `call` draws random numbers in a way that would be repeated.
[[noreturn]] void refuse_captured_draw(std::string_view call);

/// Used by one thread. The numbers live as long as the object.
class CapturedNumbers {
 public:
  /// Room for so many numbers, in place of all earlier ones. Not in a capture: memory that a graph owns is written by
  /// its other work, too.
  void reserve(c10::Device device, std::int64_t integers, std::int64_t reals);
  /// `count` numbers of int64 that `compute` writes for training step `step`. Throws Failure where there is no room.
  torch::Tensor integers(std::int64_t count, std::function<void(std::uint64_t step, std::int64_t* numbers)> compute);
  /// A scalar of float64 that `compute` returns. Throws as integers().
  torch::Tensor real(std::function<double(std::uint64_t step)> compute);
  /// Queues the copies of all numbers of training step `step` on the current stream.
  void write(std::uint64_t step);

 private:
  /// Numbers of one type.
  template <class Number>
  struct Block {
    struct Entry {
      std::int64_t first = 0;
      std::function<void(std::uint64_t step, Number* numbers)> compute;
    };
    torch::Tensor memory = {};
    std::vector<Entry> entries = {};
    std::int64_t used = 0;

    void reserve(c10::Device device, std::int64_t count);
    torch::Tensor add(std::int64_t count, std::function<void(std::uint64_t step, Number* numbers)> compute);
    void write(std::uint64_t step) const;
  };

  Block<std::int64_t> integers_;
  Block<double> reals_;
};

}  // namespace penstock
