#include "penstock/zoo/tied_language_model.h"

#include <torch/nn/modules/linear.h>

namespace penstock {

VocabularyEmbedding::VocabularyEmbedding(const TiedLanguageModelOptions& options)
    : table(add_parameter("table", [options] {
        return torch::ones({options.vocabulary, options.width});
      })) {}

Values VocabularyEmbedding::forward_many(Values tokens) {
  return {squeeze(gather(table.value(), tokens.front()), 1), table.value()};
}

Values TableHead::forward_many(Values state_and_table) {
  return {matmul(state_and_table[0], state_and_table[1], {.transpose_b = true})};
}

TiedLanguageModel::TiedLanguageModel(const TiedLanguageModelOptions& options)
    : word_embedding(options),
      layer1(add("layer1", [w = options.width] { return torch::nn::Linear(w, w); })),
      layer2(add("layer2", [w = options.width] { return torch::nn::Linear(w, w); })) {
  add("word_embedding", word_embedding);
  add("head", head);
}

Value TiedLanguageModel::forward(Value tokens) {
  const Values embedded = word_embedding(Values{tokens});
  return head(Values{layer2(layer1(embedded[0])), embedded[1]}).front();
}

}  // namespace penstock
