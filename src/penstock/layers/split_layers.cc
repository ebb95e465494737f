#include "penstock/layers/split_layers.h"

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "penstock/base/error.h"
#include "penstock/kernels/cpu_kernels.h"
#include "penstock/kernels/row_sums.h"

namespace penstock::layers {
using namespace kernels;

namespace {

/// stacked() that keeps the memory order of the rows.
torch::Tensor stacked_rows(Tensors rows) {
  if (rows.size() == 1 || rows.front().is_contiguous()) return stacked(rows);
  for (torch::Tensor& some : rows) some = some.t();
  return torch::cat(rows, 1).t();
}

/// y = x w^T + b with x [..., in], w [out, in], y [..., out]:
///   I  dx = dy w
///   W  dw = dy^T x, db = sum of dy's rows
/// With the transposed weight w [in, out]: y = x w + b, dx = dy w^T, dw = x^T dy.
class SplitLinear : public SplitLayer {
 public:
  SplitLinear(const LayerCall& call, const torch::nn::LinearImpl& module, Gradients& gradients)
      : SplitLayer(call, {module.weight, module.bias}, gradients), is_transposed_(false) {}
  SplitLinear(const LayerCall& call, const TransposedLinear& module, Gradients& gradients)
      : SplitLayer(call, {module.weight, module.bias}, gradients), is_transposed_(true) {}

 private:
  /// [out, in]: a weight as torch::nn::Linear has it.
  torch::Tensor matrix(const torch::Tensor& weight) const { return is_transposed_ ? weight.t() : weight; }

  /// The selected kernel if it supports x, otherwise the library's.
  LinearKernel kernel_for(const torch::Tensor& x) const {
    if (is_transposed_) return LinearKernel::library;
    const LinearKernel kernel = kernels().kernel_for(LinearShape{weight().size(1), weight().size(0)});
    return can_compute(kernel, x, bias().defined()) ? kernel : LinearKernel::library;
  }

  bool has_own_kernel(const torch::Tensor& x) const override { return kernel_for(x) != LinearKernel::library; }

  torch::Tensor arranged(const torch::Tensor& tensor) const override {
    return arranged_for(kernel_for(tensor), tensor);
  }

  torch::Tensor compute(const torch::Tensor& x, const WeightAndBias& parameters) const override {
    return run_linear(kernel_for(x), x, {matrix(parameters.weight), parameters.bias});
  }

  torch::Tensor input_gradient_of(const SavedForWeights& saved) const override {
    const torch::Tensor& dy = saved.output_gradient;
    return linear_input_gradient(kernel_for(dy), dy, matrix(parameters_for(dy).weight));
  }

  void add_weight_gradients(const Tensors& inputs, const Tensors& output_gradients) const override {
    const torch::Tensor sizes = matrix(weight());
    Tensors x, dy;
    for (const torch::Tensor& input : inputs) x.push_back(input.reshape({-1, sizes.size(1)}));
    for (const torch::Tensor& gradient : output_gradients) dy.push_back(gradient.reshape({-1, sizes.size(0)}));
    for_each_stack(x.size(), x.front().size(0), [&](std::size_t begin, std::size_t end) {
      const auto some = [&](const Tensors& all) {
        return stacked_rows(
            Tensors(all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(end)));
      };
      const torch::Tensor rows = some(dy);
      if (is_transposed_)
        gradients().add_product(weight_use(), some(x).t(), rows);
      else
        gradients().add_product(weight_use(), rows.t(), some(x));
      if (bias_use()) gradients().add(*bias_use(), sum_of_rows(rows, weight().scalar_type()));
    });
  }

  bool is_transposed_;
};

struct Window {
  std::vector<std::int64_t> stride, padding, dilation;
  std::int64_t groups = 1;
};

/// None if the padding is not a number of zeros per side.
template <std::size_t D, class Impl>
std::optional<Window> window_of(const Impl& module) {
  const auto& options = module.options;
  const auto* padding = std::get_if<torch::ExpandingArray<D>>(&options.padding());
  if (!padding || !std::holds_alternative<torch::enumtype::kZeros>(options.padding_mode())) return std::nullopt;
  const auto list = [](const torch::ExpandingArray<D>& array) {
    return std::vector<std::int64_t>(array->begin(), array->end());
  };
  return Window{list(options.stride()), list(*padding), list(options.dilation()), options.groups()};
}

ConvolutionShape shape_of(const torch::Tensor& weight, const Window& window, const torch::Tensor& x) {
  const auto pair = [](const std::vector<std::int64_t>& sides) { return Extent{sides[0], sides[1]}; };
  return {weight.size(1),
          weight.size(0),
          {x.size(2), x.size(3)},
          {{weight.size(2), weight.size(3)}, pair(window.stride), pair(window.padding), pair(window.dilation)}};
}

/// Convolutions in one, two and three dimensions with explicit zero padding: x [n, in, ...], w [out, in/groups, ...],
/// y [n, out, ...]; a single sample may lack the dimension n. Computed by LibTorch's kernels, with one half of the
/// backward pass at a time; with a tuned selection, in two dimensions and on the CPU, by its kernels, on channels-last
/// images.
class SplitConvolution : public SplitLayer {
 public:
  SplitConvolution(const LayerCall& call, const WeightAndBias& parameters, Window window, Gradients& gradients)
      : SplitLayer(call, parameters, gradients), window_(std::move(window)) {}

 private:
  bool has_own_kernel(const torch::Tensor& input) const override {
    return kernel_for(batched(input), Product::forward) != ConvolutionKernel::library;
  }

  torch::Tensor arranged(const torch::Tensor& tensor) const override {
    const bool is_image = is_tunable(tensor) && tensor.dim() == weight().dim();
    return is_image ? tensor.contiguous(at::MemoryFormat::ChannelsLast) : tensor;
  }

  torch::Tensor compute(const torch::Tensor& input, const WeightAndBias& parameters) const override {
    const ConvolutionKernel kernel = kernel_for(batched(input), Product::forward);
    if (kernel != ConvolutionKernel::library)
      return convolve(input, parameters.weight, parameters.bias, geometry_for(input), kernel);
    const torch::Tensor y =
        at::convolution(batched(input), parameters.weight, parameters.bias, window_.stride, window_.padding,
                        window_.dilation, /*transposed=*/false, no_output_padding(), window_.groups);
    return input.dim() == weight().dim() ? y : y.squeeze(0);
  }

  torch::Tensor input_gradient_of(const SavedForWeights& saved) const override {
    const torch::Tensor x = batched(saved.input);
    if (kernel_for(x, Product::input_grad) != ConvolutionKernel::library)
      return convolution_input_gradient(saved.output_gradient, parameters_for(x).weight, {x.size(2), x.size(3)},
                                        geometry_for(x));
    const auto [dx, dw, db] = backward(x, batched(saved.output_gradient), {true, false, false});
    return dx.view_as(saved.input);
  }

  // Consecutive micro-batches of one shape are computed together.
  void add_weight_gradients(const Tensors& inputs, const Tensors& output_gradients) const override {
    for (std::size_t begin = 0, end = 0; begin < inputs.size(); begin = end) {
      Tensors x, dy;
      while (end < inputs.size() && (x.empty() || fits(x.front(), batched(inputs[end])))) {
        x.push_back(batched(inputs[end]));
        dy.push_back(batched(output_gradients[end++]));
      }
      add_weight_gradient(x, dy);
    }
  }

  // Stacks only as many micro-batches as make the product large: more would only add copies.
  void add_weight_gradient(const Tensors& x, const Tensors& dy) const {
    const ConvolutionKernel kernel = kernel_for(x.front(), Product::weight_grad);
    if (kernel == ConvolutionKernel::library) {
      const auto [dx, dw, db] = backward(stacked(x), stacked(dy), {false, true, bias_use().has_value()});
      gradients().add(weight_use(), dw);
      if (bias_use()) gradients().add(*bias_use(), db);
      return;
    }
    const std::int64_t pixels = dy.front().numel() / dy.front().size(1);
    for_each_stack(x.size(), pixels, [&](std::size_t begin, std::size_t end) {
      const Tensors some_x(x.begin() + static_cast<std::ptrdiff_t>(begin),
                           x.begin() + static_cast<std::ptrdiff_t>(end));
      const Tensors some_dy(dy.begin() + static_cast<std::ptrdiff_t>(begin),
                            dy.begin() + static_cast<std::ptrdiff_t>(end));
      gradients().add_by(weight_use(), [&](torch::Tensor& buffer, bool is_first) {
        torch::Tensor sum = buffer.permute({0, 2, 3, 1});
        require<InternalError>(sum.is_contiguous(), "a tuned convolution's gradient is not in channels-last order");
        add_convolution_weight_gradient(sum, is_first, {some_x, some_dy}, geometry_for(x.front()), kernel);
      });
      if (!bias_use()) return;
      for (const torch::Tensor& one : some_dy)
        gradients().add(*bias_use(), one.sum({0, 2, 3}, /*keepdim=*/false, weight().scalar_type()));
    });
  }

  bool is_tunable(const torch::Tensor& tensor) const {
    return kernels().is_tuned() && weight().dim() == 4 && window_.groups == 1 && tensor.device().is_cpu();
  }

  ConvolutionKernel kernel_for(const torch::Tensor& x, Product product) const {
    return is_tunable(x) ? kernels().kernel_for(shape_of(weight(), window_, x), product) : ConvolutionKernel::library;
  }

  ConvolutionGeometry geometry_for(const torch::Tensor& x) const { return shape_of(weight(), window_, x).geometry; }

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
  std::optional<Window> window = window_of<D>(*module);
  if (!window) return nullptr;
  return std::make_unique<SplitConvolution>(call, WeightAndBias{module->weight, module->bias}, *std::move(window),
                                            gradients);
}

/// y = the rows of w with the indices x: x [...] integers, w [rows, width], y [..., width]. x has no gradient: the whole
/// backward pass is W.
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
    const torch::Tensor indices = stacked(x), gradient = stacked(dy);
    const auto dense = [&](const torch::Tensor& of, std::int64_t rows, std::int64_t padding) {
      return at::embedding_dense_backward(gradient, of, rows, padding, /*scale_grad_by_freq=*/false);
    };
    if (!weight().is_cpu()) return gradients().add(weight_use(), dense(indices, weight().size(0), padding_));
    // Only rows that occur: of a large vocabulary these are few. The sums are made in the same order.
    const auto [rows, row_of] = at::_unique(indices, /*sorted=*/true, /*return_inverse=*/true);
    torch::Tensor sums = dense(row_of, rows.numel(), /*padding=*/-1).to(weight().scalar_type());
    if (padding_ >= 0) sums.masked_fill_(rows.eq(padding_).unsqueeze(1), 0);
    gradients().add_by(weight_use(), [&](torch::Tensor& buffer, bool is_first) {
      if (is_first) buffer.zero_();
      buffer.index_add_(0, rows, sums);
    });
  }

  std::int64_t padding_;
};

std::unique_ptr<SplitLayer> split_embedding(const LayerCall& call, Gradients& gradients) {
  const auto* module = splittable<torch::nn::EmbeddingImpl>(call);
  if (!module) return nullptr;
  const auto& options = module->options;
  // max_norm changes the weight in F; scale_grad_by_freq depends on the indices of one micro-batch.
  if (options.max_norm() || options.scale_grad_by_freq() || options.sparse()) return nullptr;
  return std::make_unique<SplitEmbedding>(call, *module, gradients);
}

}  // namespace

torch::Tensor run_linear(LinearKernel kernel, const torch::Tensor& x, const WeightAndBias& parameters) {
  const auto& [weight, bias] = parameters;
  return kernel == LinearKernel::library ? torch::linear(x, weight, bias) : tuned_linear(kernel, x, weight, bias);
}

torch::Tensor linear_input_gradient(LinearKernel kernel, const torch::Tensor& dy, const torch::Tensor& weight) {
  return kernel == LinearKernel::library ? dy.matmul(weight) : tuned_linear_input_gradient(kernel, dy, weight);
}

std::optional<ConvolutionShape> tunable_shape(const torch::nn::Conv2dImpl& module, const torch::Tensor& x) {
  const std::optional<Window> window = window_of<2>(module);
  if (!window || window->groups != 1 || !x.device().is_cpu()) return std::nullopt;
  return shape_of(module.weight, *window, x);
}

TransposedLinear::TransposedLinear(std::int64_t in, std::int64_t out)
    : weight(register_parameter("weight", torch::empty({in, out}))),
      bias(register_parameter("bias", torch::zeros({out}))) {}

std::unique_ptr<SplitLayer> split_layer(const LayerCall& call, Gradients& gradients) {
  if (const auto* transposed = splittable<TransposedLinear>(call))
    return std::make_unique<SplitLinear>(call, *transposed, gradients);
  if (const auto* linear = splittable<torch::nn::LinearImpl>(call))
    return std::make_unique<SplitLinear>(call, *linear, gradients);
  if (auto split = split_as<2, torch::nn::Conv2dImpl>(call, gradients)) return split;
  if (auto split = split_as<1, torch::nn::Conv1dImpl>(call, gradients)) return split;
  if (auto split = split_as<3, torch::nn::Conv3dImpl>(call, gradients)) return split;
  return split_embedding(call, gradients);
}

}  // namespace penstock::layers
