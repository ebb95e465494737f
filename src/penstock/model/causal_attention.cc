#include "penstock/model/causal_attention.h"

#include <cmath>

#include <ATen/autocast_mode.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/autograd.h>

namespace penstock {
namespace {

using kernels::Attended;

constexpr std::int64_t most_positions_in_fp32 = 512;

Attended attended(const AttentionInputs& inputs, std::optional<double> scale) {
  auto [mixed, sums] =
      at::_scaled_dot_product_flash_attention_for_cpu(inputs.queries, inputs.keys, inputs.values, /*dropout_p=*/0,
                                                      /*is_causal=*/true, /*attn_mask=*/{}, scale);
  return {mixed, sums};
}

/// Overwrites `gradients`.
void compute_gradients(AttentionInputs inputs, Attended saved, torch::Tensor of_mixed, std::optional<double> scale,
                       const AttentionInputs& gradients) {
  if (kernels::has_attention_gradients(inputs, of_mixed)) {
    const double usual = 1 / std::sqrt(static_cast<double>(inputs.queries.size(3)));
    return kernels::attention_gradients(inputs, saved, of_mixed, scale.value_or(usual), gradients);
  }
  if (inputs.queries.scalar_type() == torch::kBFloat16 && inputs.queries.size(2) <= most_positions_in_fp32)
    for (torch::Tensor* each : {&inputs.queries, &inputs.keys, &inputs.values, &saved.mixed, &of_mixed})
      *each = each->to(torch::kFloat32);
  const auto [queries, keys, values] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      of_mixed, inputs.queries, inputs.keys, inputs.values, saved.mixed, saved.sums, /*dropout_p=*/0,
      /*is_causal=*/true, /*attn_mask=*/{}, scale);
  gradients.queries.copy_(queries);
  gradients.keys.copy_(keys);
  gradients.values.copy_(values);
}

struct AttentionNode : torch::autograd::Function<AttentionNode> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& queries,
                               const torch::Tensor& keys, const torch::Tensor& values, std::optional<double> scale) {
    const Attended found = attended({queries, keys, values}, scale);
    context->save_for_backward({queries, keys, values, found.mixed, found.sums});
    context->saved_data["scale"] = scale;
    return found.mixed;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& output_gradients) {
    if (!output_gradients.front().defined()) return torch::autograd::variable_list(4);
    const torch::autograd::variable_list of = context->get_saved_variables();
    const AttentionInputs gradients{at::empty_like(of[0]), at::empty_like(of[1]), at::empty_like(of[2])};
    compute_gradients({of[0], of[1], of[2]}, {of[3], of[4]}, output_gradients.front(),
                      context->saved_data["scale"].toOptional<double>(), gradients);
    return {gradients.queries, gradients.keys, gradients.values, {}};
  }
};

struct SelfAttentionNode : torch::autograd::Function<SelfAttentionNode> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& queries_keys_values,
                               std::int64_t heads) {
    const Attended found = attended(split_heads(queries_keys_values, heads), {});
    context->save_for_backward({queries_keys_values, found.mixed, found.sums});
    context->saved_data["heads"] = heads;
    return merged_heads(found.mixed);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& output_gradients) {
    if (!output_gradients.front().defined()) return torch::autograd::variable_list(2);
    const torch::autograd::variable_list of = context->get_saved_variables();
    const std::int64_t heads = context->saved_data["heads"].toInt();
    const torch::Tensor& dy = output_gradients.front();
    const torch::Tensor of_mixed = dy.unflatten(2, {heads, dy.size(2) / heads}).transpose(1, 2);
    torch::Tensor result = at::empty_like(of[0]);
    compute_gradients(split_heads(of[0], heads), {of[1], of[2]}, of_mixed, {}, split_heads(result, heads));
    return {result, torch::Tensor()};
  }
};

/// The type in which the attention is computed.
c10::ScalarType type_for(const torch::Tensor& input) {
  const auto device = input.device().type();
  return at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device) : input.scalar_type();
}

}  // namespace

AttentionInputs split_heads(const torch::Tensor& queries_keys_values, std::int64_t heads) {
  const std::int64_t width = queries_keys_values.size(2) / 3;
  const auto split = [&](std::int64_t which) {
    return queries_keys_values.narrow(2, which * width, width).unflatten(2, {heads, width / heads}).transpose(1, 2);
  };
  return {split(0), split(1), split(2)};
}

torch::Tensor merged_heads(const torch::Tensor& heads) { return heads.transpose(1, 2).flatten(2); }

torch::Tensor causal_attention(const AttentionInputs& inputs, std::optional<double> scale) {
  const auto& [queries, keys, values] = inputs;
  const std::int64_t heads = queries.size(1);
  if (!queries.device().is_cpu() || type_for(queries) != torch::kBFloat16 || keys.size(2) != queries.size(2) ||
      values.size(3) != queries.size(3) || !torch::GradMode::is_enabled())
    return torch::scaled_dot_product_attention(queries, keys, values, /*attn_mask=*/{}, /*dropout_p=*/0,
                                               /*is_causal=*/true, scale, /*enable_gqa=*/keys.size(1) != heads);
  const auto prepared = [&](const torch::Tensor& tensor) {
    const torch::Tensor cast = tensor.to(torch::kBFloat16);
    return cast.size(1) == heads ? cast : cast.repeat_interleave(heads / cast.size(1), 1);
  };
  return AttentionNode::apply(prepared(queries), prepared(keys), prepared(values), scale);
}

torch::Tensor causal_self_attention(const torch::Tensor& queries_keys_values, std::int64_t heads) {
  const c10::ScalarType type = type_for(queries_keys_values);
  if (queries_keys_values.device().is_cpu() && (type == torch::kFloat32 || type == torch::kBFloat16))
    return SelfAttentionNode::apply(queries_keys_values.to(type).contiguous(), heads);
  return merged_heads(causal_attention(split_heads(queries_keys_values, heads)));
}

}  // namespace penstock
