#include "penstock/layers/fast_layers.h"

#include <typeinfo>

#include <torch/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "penstock/kernels/cpu_kernels.h"
#include "penstock/layers/thread_scopes.h"
#include "penstock/model/sequence_memory.h"

namespace penstock::layers {
namespace {

struct FastGelu : torch::autograd::Function<FastGelu> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& input) {
    const torch::Tensor x = input.contiguous();
    context->save_for_backward({x});
    return kernels::gelu_of(x);
  }

  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& output_gradients) {
    const torch::Tensor x = context->get_saved_variables().front();
    if (!output_gradients.front().defined()) return {torch::Tensor()};
    return {kernels::gelu_input_gradient(x, output_gradients.front().contiguous())};
  }
};

}  // namespace

void make_fast(BuiltLayer& layer) {
  torch::nn::Module& module = *layer.module;
  if (auto* convolution = dynamic_cast<torch::nn::Conv2dImpl*>(&module);
      convolution && convolution->options.groups() == 1)
    convolution->weight.set_data(convolution->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
  if (typeid(module) != typeid(torch::nn::GELUImpl) ||
      static_cast<torch::nn::GELUImpl&>(module).options.approximate() != "tanh")
    return;
  layer.forward = [plain = layer.forward](const Tensors& inputs) {
    const torch::Tensor& x = inputs.front();
    const bool has_type = x.scalar_type() == torch::kFloat32 || x.scalar_type() == torch::kBFloat16;
    if (!x.device().is_cpu() || !has_type) return plain(inputs);
    return Tensors{FastGelu::apply(x)};
  };
}

void make_few_rows_fast(BuiltLayer& layer) {
  const torch::nn::Module& module = *layer.module;
  if (typeid(module) != typeid(torch::nn::LinearImpl)) return;
  layer.forward = [plain = layer.forward,
                   linear = static_cast<const torch::nn::LinearImpl*>(&module)](const Tensors& inputs) {
    if (!SequenceMemory::current()) return plain(inputs);
    return Tensors{linear_of_few_rows(inputs.front(), linear->weight, linear->bias)};
  };
}

// A library for matrix products copies one of the two matrices into another order first, the second one, and that is the
// weight in x w^T. The copy costs more than the product of so few rows; w x^T copies x.
torch::Tensor linear_of_few_rows(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
  constexpr std::int64_t least = 2, most = 5;  // one row is a product of a vector, which copies nothing
  const std::int64_t rows = x.numel() / weight.size(1);
  if (!x.device().is_cpu() || x.scalar_type() != torch::kFloat32 || Autocast::current(c10::DeviceType::CPU).enabled ||
      rows < least || rows > most)
    return torch::linear(x, weight, bias);
  // Rows that are contiguous in memory, which also other layers read faster.
  torch::Tensor y = torch::mm(weight, x.reshape({rows, -1}).contiguous().t()).t().contiguous();
  if (bias.defined()) y += bias;
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  return y.view(sizes);
}

}  // namespace penstock::layers
