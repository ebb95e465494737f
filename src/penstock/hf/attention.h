// Causal self-attention between its projections: rotary positions, grouped heads, sliding windows, several documents in
// a row, and the keys and values of an inference session. Internal to this module.
#pragma once

#include <memory>

#include "penstock/hf/rotary.h"
#include "penstock/model/layer.h"

namespace penstock::hf {

struct AttentionOptions {
  std::int64_t heads = 1;            // of the queries
  std::int64_t key_value_heads = 1;  // each serves heads / key_value_heads consecutive heads of the queries
  std::int64_t head_size = 1;
  double scale = 1;         // of the products of queries and keys
  std::int64_t window = 0;  // how many positions a token attends to, itself included; 0: all before it
  double dropout = 0;       // of the weights, in training
  std::shared_ptr<const Rotary> rotary = {};  // null: none
};

/// A layer without parameters. Takes queries [n, T, heads * head_size], keys and values [n, T, key_value_heads *
/// head_size] (or with a dimension of their own for the heads) and, optionally, documents [n, T] (CausalLm); returns
/// [n, T, heads * head_size]. Computed by LibTorch's scaled_dot_product_attention, with a mask only for a window that
/// is shorter than the sequence, and for several new tokens in a session. In an inference session keys and values are
/// kept in buffers that double when they are full; with a window, they hold at most twice its positions, or a call's
/// and the window's. A forward throws ConfigError for documents in a session.
LayerFactory attention(const AttentionOptions& options);

/// The positions of tokens [n, T], int64 [n or 1, T]: from 0 in each document, or in a session from the end of its
/// previous call. Inputs: tokens and, optionally, documents.
torch::Tensor positions_of(const Tensors& inputs);

}  // namespace penstock::hf
