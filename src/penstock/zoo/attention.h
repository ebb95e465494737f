// The parts of the zoo's language models that torch does not have: causal self-attention (without its projections), and
// token positions.
#pragma once

#include <cstdint>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

namespace penstock {

/// Causal multi-head self-attention: every position attends to itself and to those before it. Takes queries, keys and
/// values concatenated, [n, T, 3 * width], and returns [n, T, width]. No parameters. In an inference session it caches
/// keys and values ([n, heads, T so far, width / heads] each), so that later calls pass only the new positions.
class CausalAttentionImpl : public torch::nn::Module {
 public:
  /// `heads` must divide the width.
  explicit CausalAttentionImpl(std::int64_t heads);
  torch::Tensor forward(const torch::Tensor& queries_keys_values);

 private:
  std::int64_t heads_;
};
TORCH_MODULE(CausalAttention);

/// The positions of `tokens` [n, T]: int64 [1, T], counted from 0, or in an inference session from the end of its
/// previous call. For use in apply(). Throws ConfigError for a position of `context` or beyond.
torch::Tensor next_positions(const torch::Tensor& tokens, std::int64_t context);

}  // namespace penstock
