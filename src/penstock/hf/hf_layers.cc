#include "penstock/hf/hf_layers.h"

#include <map>

#include <torch/autograd.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/layers/split_layers.h"

namespace penstock::hf {
namespace {

/// The parameter of a module that was made small, at its real size.
void resize(torch::Tensor& parameter, at::IntArrayRef sizes, const Initial& initial) {
  parameter.set_data(torch::empty(sizes));
  if (initial.is_random) torch::nn::init::normal_(parameter, 0, initial.deviation);
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// With r = 1 / sqrt(mean of x^2 + epsilon) per row and w = weight + offset:
///   y = x r w,  dx = r (dy w - x r mean of (x r dy w)),  dweight = sum over rows of dy x r
struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& input, const torch::Tensor& weight,
                               const RmsNormOptions& options) {
    const torch::Tensor x = input.to(torch::kFloat32);
    const torch::Tensor r = x.square().mean(-1, /*keepdim=*/true).add_(options.epsilon).rsqrt_();
    context->save_for_backward({input, r, weight});
    context->saved_data["offset"] = options.offset;
    return (x * r).mul_(scale_of(weight, options.offset)).to(input.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    variable_list result(3);
    if (!gradients.front().defined()) return result;
    const auto saved = context->get_saved_variables();
    const torch::Tensor& r = saved[1];
    const torch::Tensor scale = scale_of(saved[2], context->saved_data["offset"].toDouble());
    const torch::Tensor normal = saved[0].to(torch::kFloat32) * r, dy = gradients.front().to(torch::kFloat32);
    if (context->needs_input_grad(1)) result[1] = (dy * normal).flatten(0, -2).sum(at::IntArrayRef{0});
    if (context->needs_input_grad(0)) {
      torch::Tensor dx = dy * scale;
      const torch::Tensor mean = (dx * normal).mean(-1, /*keepdim=*/true);
      result[0] = dx.addcmul_(normal, mean, -1).mul_(r).to(saved[0].scalar_type());
    }
    return result;
  }

  static torch::Tensor scale_of(const torch::Tensor& weight, double offset) {
    return offset == 0 ? weight : weight + offset;
  }
};

class RmsNormLayer : public torch::nn::Module {
 public:
  explicit RmsNormLayer(const RmsNormOptions& options)
      : weight_(register_parameter("weight", torch::full({options.width}, 1 - options.offset))), options_(options) {}

  torch::Tensor forward(const torch::Tensor& x) {
    if (x.size(-1) == options_.width) return RmsNorm::apply(x, weight_, options_);
    return RmsNorm::apply(x.unflatten(-1, {-1, options_.width}), weight_, options_).view(x.sizes());
  }

 private:
  torch::Tensor weight_;
  RmsNormOptions options_;
};

torch::Tensor activated(const torch::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::silu: return torch::silu(x);
    case Activation::gelu: return torch::gelu(x);
    case Activation::gelu_tanh: return torch::gelu(x, "tanh");
    case Activation::relu: return torch::relu(x);
  }
  throw InternalError("no such activation");
}

torch::Tensor input_gradient(const torch::Tensor& dy, const torch::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::silu: return at::silu_backward(dy, x);
    case Activation::gelu: return at::gelu_backward(dy, x);
    case Activation::gelu_tanh: return at::gelu_backward(dy, x, "tanh");
    case Activation::relu: return at::threshold_backward(dy, x, 0);
  }
  throw InternalError("no such activation");
}

struct Gated : torch::autograd::Function<Gated> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& gate, const torch::Tensor& up,
                               Activation activation) {
    context->save_for_backward({gate, up});
    context->saved_data["activation"] = static_cast<std::int64_t>(activation);
    return activated(gate, activation).mul_(up);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const torch::Tensor& dy = gradients.front();
    if (!dy.defined()) return variable_list(3);
    const auto saved = context->get_saved_variables();
    const auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    const torch::Tensor of_up = activated(saved[0], activation).mul_(dy);
    return {input_gradient(dy * saved[1], saved[0], activation), of_up, torch::Tensor()};
  }
};

}  // namespace

LayerFactory linear(const LinearSizes& sizes, const Initial& initial) {
  return layer_factory([sizes, initial] {
    torch::nn::Linear made(torch::nn::LinearOptions(1, 1).bias(sizes.has_bias));
    made->options.in_features(sizes.in).out_features(sizes.out);
    resize(made->weight, {sizes.out, sizes.in}, initial);
    if (sizes.has_bias) made->bias.set_data(torch::zeros({sizes.out}));
    return made;
  });
}

LayerFactory conv1d(const LinearSizes& sizes, const Initial& initial) {
  return layer_factory([sizes, initial] {
    auto made = std::make_shared<layers::TransposedLinear>(sizes.in, sizes.out);
    if (initial.is_random) torch::nn::init::normal_(made->weight, 0, initial.deviation);
    return made;
  });
}

LayerFactory embedding(const EmbeddingSizes& sizes, const Initial& initial) {
  return layer_factory([sizes, initial] {
    torch::nn::Embedding made(1, 1);
    made->options.num_embeddings(sizes.rows).embedding_dim(sizes.width).padding_idx(sizes.padding);
    resize(made->weight, {sizes.rows, sizes.width}, initial);
    return made;
  });
}

LayerFactory layer_norm(std::int64_t width, double epsilon) {
  return layer_factory(
      [width, epsilon] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}).eps(epsilon)); });
}

LayerFactory rms_norm(const RmsNormOptions& options) {
  return layer_factory([options] { return std::make_shared<RmsNormLayer>(options); });
}

Activation activation_named(const std::string& name, const std::string& place) {
  static const std::map<std::string, Activation> known{
      {"silu", Activation::silu},          {"swish", Activation::silu}, {"gelu", Activation::gelu},
      {"gelu_new", Activation::gelu_tanh}, {"relu", Activation::relu},  {"gelu_pytorch_tanh", Activation::gelu_tanh},
  };
  const auto found = known.find(name);
  require<ConfigError>(found != known.end(), place, " has the activation '", name,
                       "', which is not supported: use one of ",
                       listed(known, ", ", [](const auto& one) { return one.first; }));
  return found->second;
}

Value activate(const Value& x, Activation activation) {
  return apply(
      "activation", [activation](const Tensors& inputs) { return activated(inputs[0], activation); }, Values{x});
}

Value gated(const Value& gate, const Value& up, Activation activation) {
  return apply(
      "gated", [activation](const Tensors& inputs) { return Gated::apply(inputs[0], inputs[1], activation); },
      Values{gate, up});
}

}  // namespace penstock::hf
