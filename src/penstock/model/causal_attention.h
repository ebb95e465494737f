// Causal attention for networks that train.
#pragma once

#include <cstdint>
#include <optional>

#include "penstock/base/tensor.h"
#include "penstock/kernels/attention_gradients.h"

namespace penstock {

/// torch::scaled_dot_product_attention with is_causal, without dropout: [n, heads, T, size]. There may be fewer heads of
/// keys and values, each for several of the queries. `scale`: 1 / sqrt(size) unless given.
///
/// Gradients in bf16 on the CPU are computed by attention_gradients(), or without AMX in fp32 up to 512 positions, from
/// values saved in bf16: LibTorch's backward pass in bf16 makes many small products, each of which costs more to begin
/// than to compute.
torch::Tensor causal_attention(const AttentionInputs& inputs, std::optional<double> scale = {});

/// The same between the layouts of linear layers: from queries, keys and values side by side, [n, T, 3 * heads * size],
/// to [n, T, heads * size]. With the split outside, autograd would pad the three gradients with zeros and add them.
torch::Tensor causal_self_attention(const torch::Tensor& queries_keys_values, std::int64_t heads);

/// Views of [n, T, 3 * heads * size].
AttentionInputs split_heads(const torch::Tensor& queries_keys_values, std::int64_t heads);
/// [n, heads, T, size] -> [n, T, heads * size].
torch::Tensor merged_heads(const torch::Tensor& heads);

}  // namespace penstock
