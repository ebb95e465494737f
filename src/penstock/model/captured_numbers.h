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
  explicit CapturedNumbers(c10::Device device) : device_(device) {}

  /// `count` numbers of int64, at most 1024, that `compute` writes for training step `step`.
  torch::Tensor integers(std::int64_t count, std::function<void(std::uint64_t step, std::int64_t* numbers)> compute);
  /// A scalar of float64, that `compute` returns.
  torch::Tensor real(std::function<double(std::uint64_t step)> compute);
  /// Queues the copies of all numbers of training step `step` on the current stream.
  void write(std::uint64_t step);

 private:
  /// Numbers of one type, in blocks that are copied at once.
  template <class Number>
  struct Blocks {
    struct Entry {
      std::int64_t at = 0;  // in all blocks
      std::function<void(std::uint64_t step, Number* numbers)> compute;
    };
    std::vector<torch::Tensor> blocks = {};
    std::vector<Entry> entries = {};
    std::int64_t used = 0;

    torch::Tensor add(std::int64_t count, Entry entry, c10::Device device);
    void write(std::uint64_t step);
  };

  const c10::Device device_;
  Blocks<std::int64_t> integers_;
  Blocks<double> reals_;
};

}  // namespace penstock
