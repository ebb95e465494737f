// y = the rows of w with the indices x: x [...] integers, w [rows, width], y [..., width]. x has no gradient: the whole
// backward pass is W.
#include <torch/nn/modules/embedding.h>

#include "penstock/layers/split_layers.h"

namespace penstock {
namespace {

class SplitEmbedding : public SplitLayer {
 public:
  SplitEmbedding(const LayerCall& call, const torch::nn::EmbeddingImpl& module, Gradients& gradients)
      : SplitLayer(call, {module.weight, {}}, gradients), padding_(module.options.padding_idx().value_or(-1)) {}

 private:
  bool follows_autocast() const override { return false; }

  torch::Tensor compute(const torch::Tensor& x, const WeightAndBias& parameters) const override {
    return torch::embedding(parameters.weight, x, padding_);
  }

  torch::Tensor input_gradient_of(const SavedForWeights&) const override { return {}; }

  void add_weight_gradients(const Tensors& inputs, const Tensors& output_gradients) const override {
    Tensors x, dy;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      x.push_back(inputs[i].reshape({-1}));
      dy.push_back(output_gradients[i].reshape({-1, weight().size(1)}));
    }
    gradients().add(weight_use(), at::embedding_dense_backward(stacked(dy), stacked(x), weight().size(0), padding_,
                                                               /*scale_grad_by_freq=*/false));
  }

  std::int64_t padding_;
};

}  // namespace

std::unique_ptr<SplitLayer> split_embedding(const LayerCall& call, Gradients& gradients) {
  const auto* module = splittable<torch::nn::EmbeddingImpl>(call);
  if (!module) return nullptr;
  const auto& options = module->options;
  // max_norm changes the weight in F; scale_grad_by_freq depends on the indices of one micro-batch.
  if (options.max_norm() || options.scale_grad_by_freq() || options.sparse()) return nullptr;
  return std::make_unique<SplitEmbedding>(call, *module, gradients);
}

}  // namespace penstock
