// A network that fails where a test decides.
#pragma once

#include <functional>
#include <utility>

#include <torch/torch.h>

#include "penstock/model/model.h"

namespace penstock::test {

/// Three stages. The second may fail in forward or backward.
struct Fragile : Cell {
  using Trouble = std::function<void(bool is_forward)>;
  explicit Fragile(Trouble trouble) : trouble_(std::move(trouble)) {
    a.pipeline_stage = 0;
    b.pipeline_stage = 1;
    c.pipeline_stage = 2;
  }
  Layer a = add("a", [] { return torch::nn::Linear(12, 16); });
  Layer b = add("b", [] { return torch::nn::Linear(16, 16); });
  Layer c = add("c", [] { return torch::nn::Linear(16, 4); });

  Value forward(Value x) override {
    const auto meet_trouble = [trouble = trouble_](const Tensors& t) {
      trouble(true);
      const torch::Tensor result = t[0] * 1;
      if (result.requires_grad()) result.register_hook([trouble](const torch::Tensor&) { trouble(false); });
      return result;
    };
    return c(apply("trouble", meet_trouble, Values{b(a(x))}));
  }

 private:
  Trouble trouble_;
};

}  // namespace penstock::test
