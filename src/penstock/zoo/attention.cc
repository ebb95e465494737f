#include "penstock/zoo/attention.h"

#include "penstock/base/error.h"
#include "penstock/model/causal_attention.h"
#include "penstock/model/sequence_memory.h"

namespace penstock {

CausalAttentionImpl::CausalAttentionImpl(std::int64_t heads) : heads_(heads) {
  require<ConfigError>(heads >= 1, "attention with ", heads, " heads: give at least 1");
}

torch::Tensor CausalAttentionImpl::forward(const torch::Tensor& queries_keys_values) {
  const std::int64_t length = queries_keys_values.size(1), width = queries_keys_values.size(2) / 3;
  require<ConfigError>(width * 3 == queries_keys_values.size(2) && width % heads_ == 0, "attention with ", heads_,
                       " heads over ", queries_keys_values.size(2),
                       " values for queries, keys and values: give three times a multiple of the heads");
  SequenceMemory* const memory = SequenceMemory::current();
  if (!memory) return causal_self_attention(queries_keys_values, heads_);
  auto [queries, keys, values] = split_heads(queries_keys_values, heads_);
  std::int64_t past = 0;
  auto& mine = memory->of_call();
  if (!mine.empty()) {
    past = mine[0].size(2);
    keys = torch::cat({mine[0], keys}, 2);
    values = torch::cat({mine[1], values}, 2);
  }
  mine = {keys, values};
  torch::Tensor mixed;
  if (past == 0) {
    mixed = causal_attention({queries, keys, values});
  } else if (length == 1) {
    mixed = torch::scaled_dot_product_attention(queries, keys, values);
  } else {
    const torch::Tensor sees = torch::ones({length, past + length}, queries.options().dtype(torch::kBool)).tril(past);
    mixed = torch::scaled_dot_product_attention(queries, keys, values, sees);
  }
  return merged_heads(mixed);
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
