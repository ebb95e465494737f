// Convolutions in one, two and three dimensions with explicit zero padding: x [n, in, ...], w [out, in/groups, ...],
// y [n, out, ...]; a single sample may come without its n. LibTorch's own backward, asked for one half at a time.
#include <torch/nn/modules/conv.h>

#include "penstock/runtime/split_layers.h"

namespace penstock {
namespace {

struct Window {
  std::vector<std::int64_t> stride, padding, dilation;
  std::int64_t groups = 1;
};

class SplitConvolution : public SplitLayer {
 public:
  SplitConvolution(const LayerCall& call, const WeightAndBias& parameters, Window window, Gradients& gradients)
      : SplitLayer(call, parameters, gradients), window_(std::move(window)) {}

 private:
  torch::Tensor compute(const torch::Tensor& input, const WeightAndBias& parameters) const override {
    const torch::Tensor y =
        at::convolution(batched(input), parameters.weight, parameters.bias, window_.stride, window_.padding,
                        window_.dilation, /*transposed=*/false, no_output_padding(), window_.groups);
    return input.dim() == weight().dim() ? y : y.squeeze(0);
  }

  torch::Tensor input_gradient_of(const KeptForWeights& kept) const override {
    const torch::Tensor x = batched(kept.input);
    const auto [dx, dw, db] = backward(x, batched(kept.output_gradient), {true, false, false});
    return dx.view_as(kept.input);
  }

  // Samples of one shape are computed together; a change of shape begins a new product.
  void add_weight_gradients(const Tensors& inputs, const Tensors& output_gradients) const override {
    for (std::size_t begin = 0, end = 0; begin < inputs.size(); begin = end) {
      Tensors x, dy;
      while (end < inputs.size() && (x.empty() || fits(x.front(), batched(inputs[end])))) {
        x.push_back(batched(inputs[end]));
        dy.push_back(batched(output_gradients[end++]));
      }
      const auto [dx, dw, db] = backward(stacked(x), stacked(dy), {false, true, bias_use().has_value()});
      gradients().add(weight_use(), dw);
      if (bias_use()) gradients().add(*bias_use(), db);
    }
  }

  torch::Tensor batched(const torch::Tensor& tensor) const {
    return tensor.dim() == weight().dim() ? tensor : tensor.unsqueeze(0);
  }
  static bool fits(const torch::Tensor& a, const torch::Tensor& b) { return a.sizes().slice(1) == b.sizes().slice(1); }

  std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> backward(const torch::Tensor& x, const torch::Tensor& dy,
                                                                   std::array<bool, 3> wanted) const {
    const at::OptionalIntArrayRef bias_sizes(weight().sizes().slice(0, 1));
    return at::convolution_backward(dy, x, parameters_for(x).weight, bias_sizes, window_.stride, window_.padding,
                                    window_.dilation, /*transposed=*/false, no_output_padding(), window_.groups,
                                    wanted);
  }

  std::vector<std::int64_t> no_output_padding() const { return std::vector<std::int64_t>(window_.stride.size(), 0); }

  Window window_;
};

template <std::size_t D, class Impl>
std::unique_ptr<SplitLayer> split_as(const LayerCall& call, Gradients& gradients) {
  const auto* module = splittable<Impl>(call);
  if (!module) return nullptr;
  const auto& options = module->options;
  const auto* padding = std::get_if<torch::ExpandingArray<D>>(&options.padding());
  if (!padding || !std::holds_alternative<torch::enumtype::kZeros>(options.padding_mode())) return nullptr;
  const auto list = [](const torch::ExpandingArray<D>& array) {
    return std::vector<std::int64_t>(array->begin(), array->end());
  };
  return std::make_unique<SplitConvolution>(
      call, WeightAndBias{module->weight, module->bias},
      Window{list(options.stride()), list(*padding), list(options.dilation()), options.groups()}, gradients);
}

}  // namespace

std::unique_ptr<SplitLayer> split_convolution(const LayerCall& call, Gradients& gradients) {
  if (auto split = split_as<2, torch::nn::Conv2dImpl>(call, gradients)) return split;
  if (auto split = split_as<1, torch::nn::Conv1dImpl>(call, gradients)) return split;
  return split_as<3, torch::nn::Conv3dImpl>(call, gradients);
}

}  // namespace penstock
