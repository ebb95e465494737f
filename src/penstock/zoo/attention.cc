#include "penstock/zoo/attention.h"

#include <ATen/autocast_mode.h>
#include <torch/autograd.h>

#include "penstock/base/error.h"
#include "penstock/model/causal_attention.h"
#include "penstock/model/sequence_memory.h"

namespace penstock {
namespace {

struct Heads {
  torch::Tensor queries, keys, values;  // [n, heads, T, width / heads]
};

Heads heads_of(const torch::Tensor& queries_keys_values, std::int64_t heads) {
  const std::int64_t rows = queries_keys_values.size(0), length = queries_keys_values.size(1);
  const std::int64_t width = queries_keys_values.size(2) / 3;
  const auto split = [&](std::int64_t which) {
    return queries_keys_values.narrow(2, which * width, width)
        .view({rows, length, heads, width / heads})
        .transpose(1, 2);
  };
  return {split(0), split(1), split(2)};
}

/// [n, heads, T, size] -> [n, T, heads * size].
torch::Tensor side_by_side(const torch::Tensor& heads) {
  return heads.transpose(1, 2).reshape({heads.size(0), heads.size(2), heads.size(1) * heads.size(3)});
}

/// LibTorch's attention kernel for CPUs as one autograd node that includes the split into queries, keys and values.
/// With the split outside, autograd would pad the three gradients with zeros and add them.
struct WholeAttention : torch::autograd::Function<WholeAttention> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& queries_keys_values,
                               std::int64_t heads) {
    const auto [queries, keys, values] = heads_of(queries_keys_values, heads);
    const auto [mixed, sums] =
        at::_scaled_dot_product_flash_attention_for_cpu(queries, keys, values, /*dropout_p=*/0, /*is_causal=*/true);
    context->save_for_backward({queries_keys_values, mixed, sums});
    context->saved_data["heads"] = heads;
    return side_by_side(mixed);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    if (!gradients.front().defined()) return {torch::Tensor(), torch::Tensor()};
    const auto saved = context->get_saved_variables();
    const std::int64_t heads = context->saved_data["heads"].toInt();
    const auto [queries, keys, values] = heads_of(saved[0], heads);
    const torch::Tensor& dy = gradients.front();
    const torch::Tensor of_heads = dy.view({dy.size(0), dy.size(1), heads, dy.size(2) / heads}).transpose(1, 2);
    const auto [of_queries, of_keys, of_values] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        of_heads, queries, keys, values, saved[1], saved[2], /*dropout_p=*/0, /*is_causal=*/true);
    return {torch::cat({side_by_side(of_queries), side_by_side(of_keys), side_by_side(of_values)}, 2), torch::Tensor()};
  }
};

}  // namespace

CausalAttentionImpl::CausalAttentionImpl(std::int64_t heads) : heads_(heads) {
  require<ConfigError>(heads >= 1, "attention with ", heads, " heads: give at least 1");
}

torch::Tensor CausalAttentionImpl::forward(const torch::Tensor& queries_keys_values) {
  const std::int64_t length = queries_keys_values.size(1), width = queries_keys_values.size(2) / 3;
  require<ConfigError>(width * 3 == queries_keys_values.size(2) && width % heads_ == 0, "attention with ", heads_,
                       " heads over ", queries_keys_values.size(2),
                       " values for queries, keys and values: give three times a multiple of the heads");
  SequenceMemory* const memory = SequenceMemory::current();
  const bool is_plain = !memory && queries_keys_values.device().is_cpu() && queries_keys_values.is_contiguous() &&
                        queries_keys_values.scalar_type() == torch::kFloat32 &&
                        !at::autocast::is_autocast_enabled(at::kCPU);
  if (is_plain) return WholeAttention::apply(queries_keys_values, heads_);
  auto [queries, keys, values] = heads_of(queries_keys_values, heads_);
  std::int64_t past = 0;
  if (memory) {
    auto& mine = memory->of_call();
    if (!mine.empty()) {
      past = mine[0].size(2);
      keys = torch::cat({mine[0], keys}, 2);
      values = torch::cat({mine[1], values}, 2);
    }
    mine = {keys, values};
  }
  torch::Tensor mixed;
  if (past == 0) {
    mixed = causal_attention({queries, keys, values});
  } else if (length == 1) {
    mixed = torch::scaled_dot_product_attention(queries, keys, values);
  } else {
    const torch::Tensor sees = torch::ones({length, past + length}, queries.options().dtype(torch::kBool)).tril(past);
    mixed = torch::scaled_dot_product_attention(queries, keys, values, sees);
  }
  return side_by_side(mixed);
}

torch::Tensor next_positions(const torch::Tensor& tokens, std::int64_t context) {
  require<ConfigError>(tokens.dim() == 2, "tokens are [n, T], not ", tokens.dim(), "-dimensional");
  const std::int64_t length = tokens.size(1);
  std::int64_t past = 0;
  if (SequenceMemory* memory = SequenceMemory::current()) {
    auto& mine = memory->of_call();
    if (!mine.empty()) past = mine[0].item<std::int64_t>();
    mine = {torch::full({}, past + length, torch::kInt64)};
  }
  require<ConfigError>(past + length <= context, "a sequence of ", past + length,
                       " tokens, but the model's context is ", context,
                       ": give shorter ones, or restart the session with the last of them");
  return torch::arange(past, past + length, torch::TensorOptions(torch::kInt64).device(tokens.device())).unsqueeze(0);
}

}  // namespace penstock
