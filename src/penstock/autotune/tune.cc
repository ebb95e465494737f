#include "penstock/autotune/tune.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "penstock/autotune/sample.h"
#include "penstock/base/clock.h"
#include "penstock/kernels/cpu_kernels.h"
#include "penstock/layers/split_layers.h"
#include "penstock/world/collectives.h"

namespace penstock {
using namespace kernels;
namespace {

constexpr int least_tuning_rounds = 4;
constexpr int most_tuning_rounds = 20;  // for layers that take little time
constexpr double enough_ms = 25;
constexpr double hopeless = 2;  // a kernel this many times as slow as the best is run twice only

/// The times of LibTorch's kernels and of the fastest ones.
struct TimeSums {
  double library = 0, fastest = 0;
};

double milliseconds(const std::function<void()>& run) {
  const std::int64_t begin = now_ns();
  run();
  return ms_since(begin);
}

template <class Kernel>
struct TimedKernel {
  Kernel kernel;
  std::function<void()> run;
  double least = std::numeric_limits<double>::infinity();
};

/// The fastest of `all`, of which the first is LibTorch's. Runs them in rounds, so that a temporary slowdown of the
/// machine affects all of them.
template <class Kernel>
Kernel fastest_of(std::vector<TimedKernel<Kernel>> all, TimeSums& sums) {
  double spent = 0, least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < least_tuning_rounds || (round < most_tuning_rounds && spent < enough_ms); ++round)
    for (TimedKernel<Kernel>& one : all) {
      if (round > 1 && one.least > hopeless * least) continue;
      const double own = milliseconds(one.run);
      spent += own;
      one.least = std::min(one.least, own);
      least = std::min(least, own);
    }
  sums.library += all.front().least;
  sums.fastest += least;
  return std::ranges::min_element(all, {}, &TimedKernel<Kernel>::least)->kernel;
}

/// One convolution of the network, with the operands of its products.
class TimedConvolution {
 public:
  TimedConvolution(const torch::nn::Conv2dImpl& module, const ConvolutionShape& shape, const torch::Tensor& x,
                   const TuneOptions& options)
      : shape_(shape) {
    const auto arranged = [&](const torch::Tensor& tensor) {
      return tensor.detach().to(options.compute_type).contiguous(at::MemoryFormat::ChannelsLast);
    };
    x_ = arranged(x);
    weight_ = arranged(module.weight);
    if (module.bias.defined()) bias_ = module.bias.detach().to(options.compute_type);
    dy_ = arranged(torch::ones_like(library_forward(x_)));
    const std::int64_t pixels = dy_.numel() / dy_.size(1);
    int stack = 1;
    if (options.weight_gradients != WeightGradients::stream)
      stack = std::min<int>(options.micro_batches, static_cast<int>((layers::enough_rows + pixels - 1) / pixels));
    stacked_x_ = Tensors(static_cast<std::size_t>(stack), x_);
    stacked_dy_ = Tensors(static_cast<std::size_t>(stack), dy_);
    sum_ = torch::zeros(weight_.permute({0, 2, 3, 1}).sizes(), torch::kFloat32);
  }

  ConvolutionKernel fastest(Product product, TimeSums& sums) const {
    std::vector<TimedKernel<ConvolutionKernel>> all;
    for (const auto kernel :
         {ConvolutionKernel::library, ConvolutionKernel::columns, ConvolutionKernel::kernel_positions})
      if (has_kernel(kernel, product)) all.push_back({kernel, [this, product, kernel] { run(product, kernel); }});
    return fastest_of(std::move(all), sums);
  }

 private:
  torch::Tensor library_forward(const torch::Tensor& x) const {
    const auto [stride, padding, dilation] = sides();
    return at::convolution(x, weight_, bias_, stride, padding, dilation, /*transposed=*/false, {0, 0}, /*groups=*/1);
  }

  void library_backward(const torch::Tensor& x, const torch::Tensor& dy, std::array<bool, 3> wanted) const {
    const auto [stride, padding, dilation] = sides();
    at::convolution_backward(dy, x, weight_, at::OptionalIntArrayRef(), stride, padding, dilation,
                             /*transposed=*/false, {0, 0}, /*groups=*/1, wanted);
  }

  std::array<std::vector<std::int64_t>, 3> sides() const {
    const auto both = [](const Extent& extent) { return std::vector<std::int64_t>{extent.height, extent.width}; };
    return {both(shape_.geometry.stride), both(shape_.geometry.padding), both(shape_.geometry.dilation)};
  }

  void run(Product product, ConvolutionKernel kernel) const {
    const bool is_library = kernel == ConvolutionKernel::library;
    switch (product) {
      case Product::forward:
        if (is_library)
          library_forward(x_);
        else
          convolve(x_, weight_, bias_, shape_.geometry, kernel);
        return;
      case Product::input_grad:
        if (is_library)
          library_backward(x_, dy_, {true, false, false});
        else
          convolution_input_gradient(dy_, weight_, shape_.image, shape_.geometry);
        return;
      case Product::weight_grad: {
        torch::Tensor sum = sum_;
        if (is_library)
          library_backward(layers::stacked(stacked_x_), layers::stacked(stacked_dy_), {false, true, false});
        else
          add_convolution_weight_gradient(sum, /*is_first=*/false, {stacked_x_, stacked_dy_}, shape_.geometry, kernel);
        return;
      }
    }
  }

  ConvolutionShape shape_;
  torch::Tensor x_, weight_, bias_, dy_, sum_;
  Tensors stacked_x_, stacked_dy_;
};

/// The fastest kernel for F and I together, because both use the same memory order.
LinearKernel fastest(const torch::nn::LinearImpl& module, const torch::Tensor& input, const TuneOptions& options,
                     TimeSums& sums) {
  const auto typed = [&](const torch::Tensor& tensor) {
    return tensor.defined() ? tensor.detach().to(options.compute_type) : tensor;
  };
  const layers::WeightAndBias parameters{typed(module.weight), typed(module.bias)};
  std::vector<TimedKernel<LinearKernel>> all;
  const torch::Tensor rows = typed(input).contiguous();
  for (const auto kernel : {LinearKernel::library, LinearKernel::bias_apart, LinearKernel::no_pack}) {
    if (!can_compute(kernel, rows, module.bias.defined())) continue;
    const torch::Tensor x = arranged_for(kernel, rows);
    const torch::Tensor dy =
        arranged_for(kernel, torch::ones_like(layers::run_linear(kernel, x, parameters)).contiguous());
    all.push_back({kernel, [&parameters, kernel, x, dy] {
                     layers::run_linear(kernel, x, parameters);
                     layers::linear_input_gradient(kernel, dy, parameters.weight);
                   }});
  }
  return fastest_of(std::move(all), sums);
}

}  // namespace

TunedKernels tune(const Graph& graph, const Tensors& sample, const TuneOptions& options,
                  const std::function<void(const Node&)>& at) {
  const torch::NoGradGuard no_grad;
  KernelSelection selection = KernelSelection::tuned();
  TimeSums sums;
  std::set<ConvolutionShape> seen;
  std::set<LinearShape> seen_linears;
  walk_sample(graph, sample, Kernels::tuned, [&](const SampleCall& call) {
    at(call.node);
    if (!call.layer) return call.node.function(call.inputs);
    const torch::Tensor& x = call.inputs.front();
    const auto* module = dynamic_cast<const torch::nn::Conv2dImpl*>(call.layer->module.get());
    const std::optional<ConvolutionShape> shape =
        module && x.dim() == 4 ? layers::tunable_shape(*module, x) : std::nullopt;
    if (shape && seen.insert(*shape).second) {
      const TimedConvolution convolution(*module, *shape, x, options);
      for (const Product product : {Product::forward, Product::input_grad, Product::weight_grad})
        selection.choose(*shape, product, convolution.fastest(product, sums));
    }
    if (const auto* linear = dynamic_cast<const torch::nn::LinearImpl*>(call.layer->module.get());
        linear && x.numel() > 0 && seen_linears.insert({linear->weight.size(1), linear->weight.size(0)}).second)
      selection.choose({linear->weight.size(1), linear->weight.size(0)}, fastest(*linear, x, options, sums));
    return call.layer->forward(call.inputs);
  });
  return {selection, sums.fastest > 0 ? sums.library / sums.fastest : 1};
}

TunedKernels agree_on_kernels(const SampleAgreement& agreement, const TuneOptions& options) {
  const std::string text = agreement.on(Topic::kernels, [&](const RankContext& context) {
    const TunedKernels tuned = tune(agreement.graph, agreement.sample, options,
                                    [&](const Node& node) { report_progress_of(context, "tune " + node.name); });
    return say(tuned.gain, "\n", tuned.selection.to_text());
  });
  const std::size_t line = text.find('\n');
  return {KernelSelection::from_text(text.substr(line + 1)), std::stod(text.substr(0, line))};
}

}  // namespace penstock
