// A decoder-only language model in the manner of GPT-2.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/model/model.h"

namespace penstock {

struct GptOptions {
  std::int64_t vocabulary = 65;  // V
  std::int64_t context = 64;     // the longest sequence
  std::int64_t width = 128;      // of the residual stream
  std::int64_t layers = 4;
  std::int64_t heads = 4;  // divide the width
  double dropout = 0.1;    // after the embedding, and on each branch before it joins the residual stream
  bool tied_head = true;   // the head's weight is the token embedding's
};

/// Tokens [n, T] of int64 in, logits [n, T, V] out. Token and position embeddings, then blocks of causal attention and
/// a feed-forward part of four times the width, each behind a LayerNorm and beside the residual stream, then a
/// LayerNorm and the head:
///
///   token_embedding position_embedding dropout
///   block0.attention.norm .qkv .mix .projection .dropout   block0.feed_forward.norm .up .gelu .down .dropout   ...
///   norm head
///
/// Weights start as GPT-2's do: normal with deviation 0.02, the projections into the residual stream with
/// 0.02 / sqrt(2 * layers); biases at 0. No layer has a stage: the partitioner partitions it, or annotate block().
/// In an inference session (Pipeline::open_session) each call goes on where the one before it stopped.
class Gpt : public Cell {
 public:
  /// Throws ConfigError for options that cannot be.
  explicit Gpt(const GptOptions& options);
  ~Gpt() override;
  Value forward(Value tokens) override;

  const GptOptions& options() const { return options_; }
  /// For annotations: `gpt.block(1).pipeline_stage = 1`.
  Cell& block(std::int64_t index);

  Layer token_embedding, position_embedding, dropout, norm, head;

 private:
  class Block;
  GptOptions options_;
  std::vector<std::unique_ptr<Block>> blocks_;
};

}  // namespace penstock
