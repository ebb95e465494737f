#include "penstock/layers/fast_layers.h"

#include <typeinfo>

#include <torch/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/conv.h>

#include "penstock/kernels/cpu_kernels.h"

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
    if (!x.device().is_cpu() || x.scalar_type() != torch::kFloat32) return plain(inputs);
    return Tensors{FastGelu::apply(x)};
  };
}

}  // namespace penstock::layers
