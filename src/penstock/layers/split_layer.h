// Layers whose backward pass comes in two halves: I gives the gradient of the input, W those of the weights, later.
//
// A linear layer, a convolution and an embedding spend half of their backward pass, or all of it, on weights that
// nobody waits for. Such a layer becomes a node of the graph whose backward computes the input's gradient alone and
// keeps what W needs: its input and its output's gradient. B is the same node, told to run its W at once: the bits are
// the same. Every other layer computes all its gradients in I; those of its parameters are summed at once, or as soon
// as those of all earlier micro-batches are there (Gradients::add_in_order).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include <torch/custom_class.h>

#include "penstock/kernels/kernel_selection.h"
#include "penstock/layers/gradients.h"
#include "penstock/model/layer.h"

namespace penstock {

class SplitLayer;

/// What W needs of one call in one micro-batch. The tensors are shared with the graph, not copied.
struct SavedForWeights : torch::CustomClassHolder {
  const SplitLayer* layer = nullptr;  // set by F, as is the input; both outlive the micro-batch
  torch::Tensor input;
  std::int64_t version = 0;                             // of the input, as it was when F used it
  c10::ScalarType input_type = c10::ScalarType::Float;  // as it came: autocast may compute in another
  torch::Tensor output_gradient;                        // set by I; undefined when the backward pass did not come by
  bool weights_now = false;                             // B: no I and W, but W within I

  void clear() {
    input.reset();
    output_gradient.reset();
  }
};
using Saved = c10::intrusive_ptr<SavedForWeights>;

/// A call of a layer, built.
struct LayerCall {
  std::string name;  // of its node, for messages
  BuiltLayer layer;
  std::shared_ptr<const KernelSelection> kernels;
};

struct WeightAndBias {
  torch::Tensor weight;
  torch::Tensor bias;  // undefined where there is none
};

/// One call of one layer. Lives on its rank's thread.
class SplitLayer {
 public:
  virtual ~SplitLayer() = default;

  /// The layer's own forward as a node that splits; `kept` gets what W will need.
  torch::Tensor forward(const torch::Tensor& input, const Saved& kept) const;
  /// The same without the node, for an input of the type it is computed in.
  torch::Tensor run(const torch::Tensor& input) const;
  /// The layer's own forward for evaluation and inference, where nothing is differentiated: by the same kernel.
  torch::Tensor run_without_graph(const torch::Tensor& input) const;
  /// `input` in that type: its own, unless autocast says otherwise; and in the order in memory that the kernels want.
  torch::Tensor as_computed(const torch::Tensor& input) const;
  /// An input or an output's gradient in the order in memory that the kernels want: itself, as a rule.
  virtual torch::Tensor arranged(const torch::Tensor& tensor) const { return tensor; }

  /// W for one micro-batch or, fused, for several in this order: one product over all of them where shapes allow. Adds
  /// to the gradients that the layer was made with, and clears `kept`. Throws ScheduleError where an input was changed in
  /// place after F used it.
  void weight_gradients(std::span<const Saved> kept) const;

  /// I: the gradient of what came in, from that of the output. Throws as weight_gradients().
  torch::Tensor input_gradient(const SavedForWeights& kept) const;

 protected:
  SplitLayer(LayerCall call, WeightAndBias parameters, Gradients& gradients);

  /// `inputs` and `output_gradients`, one each per micro-batch, none undefined.
  virtual void add_weight_gradients(const Tensors& inputs, const Tensors& output_gradients) const = 0;
  virtual torch::Tensor input_gradient_of(const SavedForWeights& kept) const = 0;

  /// Whether autocast makes the layer compute in another type than that of its weight.
  virtual bool follows_autocast() const { return true; }
  /// Whether compute() stands for the layer's own forward with its own parameters too.
  virtual bool has_own_kernel(const torch::Tensor&) const { return false; }
  /// The layer's function with these in place of its parameters.
  virtual torch::Tensor compute(const torch::Tensor& input, const WeightAndBias& parameters) const = 0;

  const torch::Tensor& weight() const { return parameters_.weight; }
  const torch::Tensor& bias() const { return parameters_.bias; }
  /// The parameters in the type that goes with `tensor`, an input or an output's gradient: cast once per step.
  const WeightAndBias& parameters_for(const torch::Tensor& tensor) const;
  Gradients& gradients() const { return gradients_; }
  std::size_t weight_use() const { return weight_use_; }
  /// None where there is no bias, or it is frozen.
  std::optional<std::size_t> bias_use() const { return bias_use_; }
  const KernelSelection& kernels() const { return *call_.kernels; }

 private:
  void require_unchanged(const SavedForWeights& kept) const;

  LayerCall call_;
  WeightAndBias parameters_;
  Gradients& gradients_;
  std::size_t weight_use_;
  std::optional<std::size_t> bias_use_;
  mutable WeightAndBias cast_;
  mutable std::uint64_t cast_in_step_ = 0;
};

}  // namespace penstock
