#include "penstock/model/causal_attention.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/autograd.h>

namespace penstock {
namespace {

constexpr std::int64_t most_positions = 512;

/// In bf16, with gradients that are computed in fp32.
struct WithExactGradients : torch::autograd::Function<WithExactGradients> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& queries,
                               const torch::Tensor& keys, const torch::Tensor& values, std::optional<double> scale) {
    auto [mixed, sums] = at::_scaled_dot_product_flash_attention_for_cpu(queries, keys, values, /*dropout_p=*/0,
                                                                         /*is_causal=*/true, /*attn_mask=*/{}, scale);
    context->save_for_backward({queries, keys, values, mixed, sums});
    context->saved_data["scale"] = scale;
    return mixed;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& output_gradients) {
    if (!output_gradients.front().defined()) return torch::autograd::variable_list(4);
    torch::autograd::variable_list of = context->get_saved_variables();
    const c10::ScalarType type = of[0].scalar_type();
    for (torch::Tensor& one : of) one = one.to(torch::kFloat32);
    auto [queries, keys, values] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        output_gradients.front().to(torch::kFloat32), of[0], of[1], of[2], of[3], of[4], /*dropout_p=*/0,
        /*is_causal=*/true, /*attn_mask=*/{}, context->saved_data["scale"].toOptional<double>());
    return {queries.to(type), keys.to(type), values.to(type), {}};
  }
};

/// The type in which the attention is computed.
c10::ScalarType type_for(const torch::Tensor& input) {
  const auto device = input.device().type();
  return at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device) : input.scalar_type();
}

}  // namespace

torch::Tensor causal_attention(const AttentionInputs& inputs, std::optional<double> scale) {
  const auto& [queries, keys, values] = inputs;
  const std::int64_t heads = queries.size(1);
  const bool is_short = queries.size(2) <= most_positions && keys.size(2) == queries.size(2);
  if (!queries.device().is_cpu() || type_for(queries) != torch::kBFloat16 || !is_short ||
      values.size(3) != queries.size(3) || !torch::GradMode::is_enabled())
    return torch::scaled_dot_product_attention(queries, keys, values, /*attn_mask=*/{}, /*dropout_p=*/0,
                                               /*is_causal=*/true, scale, /*enable_gqa=*/keys.size(1) != heads);
  const auto prepared = [&](const torch::Tensor& tensor) {
    const torch::Tensor cast = tensor.to(torch::kBFloat16);
    return cast.size(1) == heads ? cast : cast.repeat_interleave(heads / cast.size(1), 1);
  };
  return WithExactGradients::apply(prepared(queries), prepared(keys), prepared(values), scale);
}

}  // namespace penstock
