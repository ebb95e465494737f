// Gradients of causal attention in bf16, for processors with AMX. With P = softmax(scale Q K^T) under the causal mask and
// the output O = P V, of whose gradient dO:
//
//   dV = P^T dO      dP = dO V^T      dS = P (dP - rowsum(dO O))      dQ = scale dS K      dK = scale dS^T Q
//
// (Dao et al. 2022, FlashAttention, algorithm 4.) P is computed again from the sums of the forward pass. Products are of
// bf16, summed in fp32; P and dS are rounded to bf16 for them, and everything else is computed in fp32. A block of
// queries at a time, and the keys that they see.
#pragma once

#include "penstock/base/tensor.h"

namespace penstock {

/// Queries, keys and values, [n, heads, T, size] each.
struct AttentionInputs {
  torch::Tensor queries, keys, values;
};

}  // namespace penstock

namespace penstock::kernels {

/// What LibTorch's attention for CPUs leaves for the backward pass.
struct Attended {
  torch::Tensor mixed;  // O, [n, heads, T, size]
  torch::Tensor sums;   // [n, heads, T], fp32: logarithms of the sums of exponentials
};

/// Whether there is an own kernel: for tensors in bf16 on the CPU, as many heads of keys as of queries, as many keys as
/// queries, and numbers of one position that are contiguous; with AMX.
bool has_attention_gradients(const AttentionInputs& inputs, const torch::Tensor& output_gradient);

/// Overwrites `gradients`, views of any layout with contiguous numbers of one position. Any thread.
void attention_gradients(const AttentionInputs& inputs, const Attended& attended, const torch::Tensor& output_gradient,
                         double scale, const AttentionInputs& gradients);

}  // namespace penstock::kernels
