// The smallest network whose head is its embedding: the tutorials' example of inference.
#pragma once

#include <cstdint>

#include "penstock/model/model.h"

namespace penstock {

struct TiedLanguageModelOptions {
  std::int64_t vocabulary = 32;
  std::int64_t width = 32;
};

/// Tokens [n, 1] to rows of a table; the table itself comes out too.
class VocabularyEmbedding : public Cell {
 public:
  explicit VocabularyEmbedding(const TiedLanguageModelOptions& options);
  Values forward_many(Values tokens) override;

  Parameter table;  // [vocabulary, width], of ones
};

/// A state [n, width] against every row of the table: logits [n, vocabulary].
class TableHead : public Cell {
 public:
  Values forward_many(Values state_and_table) override;
};

/// Tokens [n, 1] to logits [n, vocabulary]; four Cells and layers, made for up to four stages. The head has no
/// parameter of its own: it uses the embedding's table, which is tied wherever it is on another stage.
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
