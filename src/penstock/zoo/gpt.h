// A decoder-only language model like GPT-2.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/model/model.h"

namespace penstock {

struct GptOptions {
  std::int64_t vocabulary = 65;  // V
  std::int64_t context = 64;     // longest sequence, in tokens
  std::int64_t width = 128;      // channels of the residual stream
  std::int64_t layers = 4;       // blocks
  std::int64_t heads = 4;        // must divide the width
  double dropout = 0.1;          // probability, after the embedding and at the end of each residual branch
  bool tied_head = true;         // the head shares the weight of the token embedding
};

/// Input: tokens [n, T] of int64; output: logits [n, T, V]. Token and position embeddings; blocks with two residual
/// branches, causal attention and a feed-forward part of four times the width, each with a LayerNorm at its start; a
/// LayerNorm and the head:
///
///   token_embedding position_embedding dropout
///   block0.attention.norm .qkv .mix .projection .dropout   block0.feed_forward.norm .up .gelu .down .dropout   ...
///   norm head
///
/// Initial weights are those of GPT-2: normal with standard deviation 0.02, or 0.02 / sqrt(2 * layers) for the
/// projections into the residual stream; biases are 0. No layer is annotated with a stage: use automatic partitioning,
/// or annotate block(). In an inference session (pipeline/infer.h) each call continues the sequences of the
/// previous one.
class Gpt : public Cell {
 public:
  /// Throws ConfigError for invalid options.
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
