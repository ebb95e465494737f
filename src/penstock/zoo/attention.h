// Causal self-attention between its projections, and the positions that go with it: what the zoo's language models
// are made of beside layers of torch.
#pragma once

#include <cstdint>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

namespace penstock {

/// Every position looks at itself and those before it. Takes queries, keys and values side by side, [n, T, 3 * width],
/// and gives [n, T, width]; `heads` divides the width. No parameters. In an inference session it remembers keys and
/// values ([n, heads, T so far, width / heads] each), so that only new positions have to be given.
class CausalAttentionImpl : public torch::nn::Module {
 public:
  explicit CausalAttentionImpl(std::int64_t heads);
  torch::Tensor forward(const torch::Tensor& queries_keys_values);

 private:
  std::int64_t heads_;
};
TORCH_MODULE(CausalAttention);

/// The positions of `tokens`, [n, T]: [1, T] of int64, from 0 on, or in an inference session from where its calls
/// before left off. For apply(). Throws ConfigError for a position of `context` or beyond.
torch::Tensor next_positions(const torch::Tensor& tokens, std::int64_t context);

}  // namespace penstock
