// Base class of the language models of Hugging Face directories, and what config.json says of all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/model/cell.h"

namespace penstock::hf {

/// What all architectures have in common in config.json.
struct Config {
  std::string directory;
  std::string architecture;  // "LlamaForCausalLM"
  std::string prefix;        // of the names of parameters except the head's: "model"
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;  // longest sequence, in tokens
  std::int64_t width = 0;    // channels of the residual stream
  std::int64_t layers = 0;   // blocks
  std::int64_t heads = 0;    // of the queries
  bool tied_head = false;    // the head shares the weight of the token embedding
  std::optional<std::int64_t> begin_token, padding_token;
  std::vector<std::int64_t> end_tokens;
  /// Standard deviation of random initial weights.
  double deviation = 0.02;
};

/// Where the initial values of a model's parameters come from.
enum class Init {
  weights,  // the directory's weight files
  random,   // numbers that depend on the pipeline's seed
  later     // the program, which loads them; until then they are undetermined
};

/// A decoder-only language model. Takes tokens [n, T] of int64 and returns logits [n, T, vocabulary]. With a second
/// input, documents [n, T] of int64, a row contains several documents, one after the other: consecutive tokens with
/// equal numbers are one document, attend only to each other, and count their positions from its start. Parameters have
/// Hugging Face's names. Blocks are Cells ("model.layers.0") with is_block; the embedding and the head are layers of
/// their own. In an inference session (pipeline/infer.h) each call continues the sequences of the previous one.
///
/// A forward throws ConfigError for a token that is not in the vocabulary and for sequences beyond the context.
class CausalLm : public Cell {
 public:
  const Config& config() const { return config_; }
  Values forward_many(Values inputs) override;
  /// A block, for annotations: `model.block(1).pipeline_stage = 1`.
  Cell& block(std::int64_t index);

 protected:
  /// A Cell whose layers and inner Cells the model adds.
  struct Group : Cell {
    using Cell::add;
    using Cell::add_factory;
  };

  /// Adds the group `config.prefix`, which contains all but the head, and inside it the group `blocks`.
  CausalLm(const Config& config, const std::string& blocks);
  void add_block(std::unique_ptr<Cell> block);
  Group& base() { return base_; }

 private:
  /// From the inputs of forward_many, whose tokens have been checked, to the first block's input [n, T, width].
  virtual Value embed(const Values& inputs) = 0;
  /// From the last block's output to the logits.
  virtual Value head(const Value& x) = 0;

  Config config_;
  Group base_, blocks_;
  std::vector<std::unique_ptr<Cell>> all_blocks_;
};

}  // namespace penstock::hf
