// A minimal language model whose head uses the embedding's table: the example of inference with a tied parameter.
#pragma once

#include <cstdint>

#include "penstock/model/model.h"

namespace penstock {

struct TiedLanguageModelOptions {
  std::int64_t vocabulary = 32;
  std::int64_t width = 32;
};

/// Takes tokens [n, 1] of int64; returns the rows of the table for them and the table itself.
class VocabularyEmbedding : public Cell {
 public:
  explicit VocabularyEmbedding(const TiedLanguageModelOptions& options);
  Values forward_many(Values tokens) override;

  Parameter table;  // [vocabulary, width], initially ones
};

/// Multiplies a state [n, width] with every row of the table [vocabulary, width]: logits [n, vocabulary].
class TableHead : public Cell {
 public:
  Values forward_many(Values state_and_table) override;
};

/// Takes tokens [n, 1] of int64; returns logits [n, vocabulary]. Its four members can be placed on up to four stages.
/// The head has no parameter of its own: it uses the embedding's table, which is tied if the two are on different
/// stages.
class TiedLanguageModel : public Cell {
 public:
  explicit TiedLanguageModel(const TiedLanguageModelOptions& options = {});
  Value forward(Value tokens) override;

  VocabularyEmbedding word_embedding;
  Layer layer1;
  Layer layer2;
  TableHead head;
};

}  // namespace penstock
