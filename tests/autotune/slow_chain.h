// A network of known layer times: its layers wait.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <torch/torch.h>

#include "penstock/model/cell.h"

namespace penstock::test {

struct Waits {
  int forward = 0;  // milliseconds
  int backward = 0;
};

inline void wait(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

struct WaitInBackward : torch::autograd::Function<WaitInBackward> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x, std::int64_t time) {
    context->saved_data["time"] = time;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    wait(static_cast<int>(context->saved_data["time"].toInt()));
    return {gradients.front(), torch::Tensor()};
  }
};

/// A layer for inputs [n, 4].
struct SlowImpl : torch::nn::Module {
  explicit SlowImpl(const Waits& waits) : times(waits) { scale = register_parameter("scale", torch::ones({4})); }
  torch::Tensor forward(const torch::Tensor& x) {
    wait(times.forward);
    return WaitInBackward::apply(x * scale, times.backward);
  }
  Waits times;
  torch::Tensor scale;
};

/// Layers "a", "b", ... with these waiting times.
struct SlowChain : Cell {
  explicit SlowChain(const std::vector<Waits>& waits) {
    for (std::size_t i = 0; i < waits.size(); ++i)
      layers.push_back(add(std::string(1, static_cast<char>('a' + i)),
                           [times = waits[i]] { return std::make_shared<SlowImpl>(times); }));
  }
  Value forward(Value x) override {
    for (const Layer& layer : layers) x = layer(x);
    return x;
  }
  std::vector<Layer> layers;
};

}  // namespace penstock::test
