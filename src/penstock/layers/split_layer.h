// Layers whose backward pass is split: I computes the gradient of the input, and W, later, the weights' gradients.
//
// A linear layer, a convolution and an embedding spend half of their backward pass, or all of it, on weight gradients,
// which no other stage waits for. Such a layer becomes an autograd node whose backward computes the input's gradient
// alone and saves the input and the output's gradient for W. For B the same node runs W at once, so that the bits are
// the same. Every other layer computes all its gradients in I; those of its parameters are added at once, or as soon as
// those of all earlier micro-batches have been added (Gradients::add_in_order).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include <torch/custom_class.h>

#include "penstock/kernels/kernel_selection.h"
#include "penstock/layers/gradients.h"
#include "penstock/model/layer.h"

namespace penstock::layers {

class SplitLayer;

/// What W needs of one call in one micro-batch. The tensors share their storage with the graph's.
struct SavedForWeights : torch::CustomClassHolder {
  const SplitLayer* layer = nullptr;  // set by F, as is the input; outlives the micro-batch
  torch::Tensor input;
  std::int64_t version = 0;                             // version of the input when F read it
  c10::ScalarType input_type = c10::ScalarType::Float;  // before autocast
  torch::Tensor output_gradient;                        // set by I; undefined if the backward pass skips the layer
  bool weights_now = false;                             // B: W runs within I

  void clear() {
    input.reset();
    output_gradient.reset();
  }
};
using Saved = c10::intrusive_ptr<SavedForWeights>;

/// A call of a layer that has been built.
struct LayerCall {
  std::string name;  // of its node, for messages
  BuiltLayer layer;
  std::shared_ptr<const kernels::KernelSelection> kernels;
};

struct WeightAndBias {
  torch::Tensor weight;
  torch::Tensor bias;  // undefined where there is none
};

/// One call of one layer. Lives on its rank's thread.
class SplitLayer {
 public:
  virtual ~SplitLayer() = default;

  /// The layer's forward as an autograd node that splits its backward; fills `saved` for W.
  torch::Tensor forward(const torch::Tensor& input, const Saved& saved) const;
  /// The layer's forward without the node, for an input of as_computed().
  torch::Tensor run(const torch::Tensor& input) const;
  /// The layer's forward for evaluation and inference, with the same kernel as in training.
  torch::Tensor run_without_graph(const torch::Tensor& input) const;
  /// `input` in the type of the computation, which is its own unless autocast changes it, and as arranged().
  torch::Tensor as_computed(const torch::Tensor& input) const;
  /// An input or an output's gradient in the memory order that the kernels need; mostly the tensor itself.
  virtual torch::Tensor arranged(const torch::Tensor& tensor) const { return tensor; }

  /// W for one micro-batch or, fused, for several in this order, with one product over all of them if shapes allow.
  /// Adds to the Gradients of the constructor, and clears `saved`. Throws ScheduleError if an input was changed in
  /// place after F read it.
  void weight_gradients(std::span<const Saved> saved) const;

  /// I: the gradient of the input, from saved.output_gradient. Throws as weight_gradients().
  torch::Tensor input_gradient(const SavedForWeights& saved) const;

 protected:
  SplitLayer(LayerCall call, WeightAndBias parameters, Gradients& gradients);

  /// W. `inputs` and `output_gradients` contain one tensor per micro-batch, none undefined.
  virtual void add_weight_gradients(const Tensors& inputs, const Tensors& output_gradients) const = 0;
  virtual torch::Tensor input_gradient_of(const SavedForWeights& saved) const = 0;

  /// Whether autocast changes the type in which the layer computes.
  virtual bool follows_autocast() const { return true; }
  /// Whether compute() replaces the module's forward even if the parameters are not cast.
  virtual bool has_own_kernel(const torch::Tensor&) const { return false; }
  /// The layer's function with `parameters` instead of its own.
  virtual torch::Tensor compute(const torch::Tensor& input, const WeightAndBias& parameters) const = 0;

  const torch::Tensor& weight() const { return parameters_.weight; }
  const torch::Tensor& bias() const { return parameters_.bias; }
  /// The parameters in the type for `tensor`, an input or an output's gradient; cast once per step.
  const WeightAndBias& parameters_for(const torch::Tensor& tensor) const;
  Gradients& gradients() const { return gradients_; }
  std::size_t weight_use() const { return weight_use_; }
  /// None if the layer has no bias or the bias is frozen.
  std::optional<std::size_t> bias_use() const { return bias_use_; }
  const kernels::KernelSelection& kernels() const { return *call_.kernels; }

 private:
  void require_unchanged(const SavedForWeights& saved) const;

  LayerCall call_;
  WeightAndBias parameters_;
  Gradients& gradients_;
  std::size_t weight_use_;
  std::optional<std::size_t> bias_use_;
  mutable WeightAndBias cast_;
  mutable std::uint64_t cast_in_step_ = 0;
};

}  // namespace penstock::layers
