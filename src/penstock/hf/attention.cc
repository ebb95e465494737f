#include "penstock/hf/attention.h"

#include <torch/nn/module.h>

#include "penstock/base/error.h"
#include "penstock/model/causal_attention.h"
#include "penstock/model/sequence_memory.h"

namespace penstock::hf {
namespace {

constexpr std::int64_t least_capacity = 64;  // positions

/// The documents of a batch, as one sequence of all rows one after the other.
struct Packing {
  std::vector<std::int64_t> lengths;  // of the documents
  torch::Tensor positions;            // int64 [n * T], from 0 in each document
};

Packing packing_of(const torch::Tensor& documents) {
  const torch::Tensor numbers = documents.to(torch::kCPU, torch::kInt64).contiguous();
  const std::int64_t length = numbers.size(1), count = numbers.numel();
  const auto* number = numbers.const_data_ptr<std::int64_t>();
  Packing packing{{}, torch::empty({count}, torch::kInt64)};
  auto* position = packing.positions.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    if (i % length == 0 || number[i] != number[i - 1]) packing.lengths.push_back(0);
    position[i] = packing.lengths.back()++;
  }
  return packing;
}

/// The positions of a session in a buffer: from the start, or in a window's layer the last ones.
struct KeptPositions {
  std::int64_t count = 0;
  std::int64_t window = 0;  // AttentionOptions::window
};

/// Adds `values` [n, heads, T, size] to `buffer`, which contains `kept`, and returns all of them: a view. A full buffer
/// is replaced by one of twice its size, or that keeps only the positions which later tokens attend to.
torch::Tensor append(torch::Tensor& buffer, const torch::Tensor& values, const KeptPositions& kept) {
  const std::int64_t added = values.size(2);
  if (buffer.defined() && kept.count + added <= buffer.size(2)) {
    buffer.narrow(2, kept.count, added).copy_(values);
    return buffer.narrow(2, 0, kept.count + added);
  }
  const std::int64_t stays = kept.window > 0 ? std::min(kept.count, kept.window - 1) : kept.count;
  std::int64_t capacity = buffer.defined() ? 2 * buffer.size(2) : least_capacity;
  if (kept.window > 0) capacity = std::min(capacity, 2 * kept.window);
  auto larger = torch::empty({values.size(0), values.size(1), std::max(capacity, stays + added), values.size(3)},
                             values.options());
  if (stays > 0) larger.narrow(2, 0, stays).copy_(buffer.narrow(2, kept.count - stays, stays));
  buffer = larger;
  return append(buffer, values, {stays, kept.window});
}

class AttentionLayer : public torch::nn::Module {
 public:
  explicit AttentionLayer(const AttentionOptions& options) : options_(options) {}

  torch::Tensor forward(const Tensors& inputs) {
    const bool has_documents = inputs.size() == 4;
    SequenceMemory* const memory = SequenceMemory::current();
    require<ConfigError>(!has_documents || !memory,
                         "an inference session is given documents, which are for whole sequences: pass tokens only");
    const std::int64_t rows = inputs[0].size(0), length = inputs[0].size(1);
    const auto heads_of = [&](const torch::Tensor& x, std::int64_t heads) {
      return x.dim() == 4 ? x : x.view({rows, length, heads, options_.head_size});
    };
    torch::Tensor queries = heads_of(inputs[0], options_.heads);
    torch::Tensor keys = heads_of(inputs[1], options_.key_value_heads);
    const torch::Tensor values = heads_of(inputs[2], options_.key_value_heads);
    const Packing packing = has_documents ? packing_of(inputs[3]) : Packing{};
    std::vector<torch::Tensor>* const kept = memory ? &memory->of_call() : nullptr;
    const std::int64_t past = kept && !kept->empty() ? (*kept)[2].item<std::int64_t>() : 0;
    if (options_.rotary) {
      const Rotary::Turns turns =
          has_documents ? options_.rotary->at(packing.positions) : options_.rotary->consecutive(past, length);
      queries = rotate(queries, turns);
      keys = rotate(keys, turns);
    }
    if (static_cast<std::int64_t>(packing.lengths.size()) > rows) return attend_apart(queries, keys, values, packing);
    if (!kept) return merged_heads(attend(queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)));
    const KeptPositions positions{kept->empty() ? 0 : (*kept)[3].item<std::int64_t>(), options_.window};
    kept->resize(4);
    const torch::Tensor all_keys = append((*kept)[0], keys.transpose(1, 2), positions);
    const torch::Tensor all_values = append((*kept)[1], values.transpose(1, 2), positions);
    (*kept)[2] = torch::full({}, past + length, torch::kInt64);
    (*kept)[3] = torch::full({}, all_keys.size(2), torch::kInt64);
    return merged_heads(attend(queries.transpose(1, 2), all_keys, all_values));
  }

 private:
  /// Queries [n, heads, T, size] of the last T positions; keys and values [n, key_value_heads, past + T, size], without
  /// positions that no query reaches.
  torch::Tensor attend(const torch::Tensor& queries, torch::Tensor keys, torch::Tensor values) const {
    const std::int64_t length = queries.size(2);
    if (options_.window > 0 && keys.size(2) > options_.window + length - 1) {  // what no query reaches
      const std::int64_t reached = options_.window + length - 1;
      keys = keys.narrow(2, keys.size(2) - reached, reached);
      values = values.narrow(2, values.size(2) - reached, reached);
    }
    if (length == 1) return attend_alone(queries, keys, values);
    const std::int64_t total = keys.size(2), past = total - length;
    std::optional<torch::Tensor> mask;
    const bool is_cut = options_.window > 0 && total > options_.window;
    if (past > 0 || is_cut) {
      mask = torch::ones({length, total}, queries.options().dtype(torch::kBool)).tril(past);
      if (is_cut) mask = mask->triu(past - options_.window + 1);
    }
    const double dropout = is_training() ? options_.dropout : 0;
    if (!mask && dropout == 0) return causal_attention({queries, keys, values}, options_.scale);
    return torch::scaled_dot_product_attention(queries, keys, values, mask, dropout, /*is_causal=*/!mask,
                                               options_.scale,
                                               /*enable_gqa=*/options_.heads != options_.key_value_heads);
  }

  /// The same for one position, which attends to all keys: the heads that share keys are then like positions of one
  /// head, whereas SDPA itself copies keys and values for each of them.
  torch::Tensor attend_alone(const torch::Tensor& queries, const torch::Tensor& keys,
                             const torch::Tensor& values) const {
    const torch::Tensor grouped = queries.reshape({queries.size(0), options_.key_value_heads, -1, options_.head_size});
    return torch::scaled_dot_product_attention(grouped, keys, values, {}, is_training() ? options_.dropout : 0,
                                               /*is_causal=*/false, options_.scale)
        .reshape(queries.sizes());
  }

  /// Arguments [n, T, heads, size]. Attention of each document on its own, without masks.
  torch::Tensor attend_apart(const torch::Tensor& queries, const torch::Tensor& keys, const torch::Tensor& values,
                             const Packing& packing) const {
    const auto documents_of = [&](const torch::Tensor& x) {
      return x.flatten(0, 1).unsqueeze(0).transpose(1, 2).split_with_sizes(packing.lengths, 2);
    };
    const auto some_queries = documents_of(queries), some_keys = documents_of(keys), some_values = documents_of(values);
    Tensors parts;
    for (std::size_t i = 0; i < some_queries.size(); ++i)
      parts.push_back(attend(some_queries[i], some_keys[i], some_values[i]));
    return merged_heads(torch::cat(parts, 2)).view({queries.size(0), queries.size(1), -1});
  }

  AttentionOptions options_;
};

}  // namespace

LayerFactory attention(const AttentionOptions& options) {
  const auto build = [options] {
    auto layer = std::make_shared<AttentionLayer>(options);
    return BuiltLayer{layer, [layer](const Tensors& inputs) { return Tensors{layer->forward(inputs)}; }};
  };
  return {build, 1};
}

torch::Tensor positions_of(const Tensors& inputs) {
  const torch::Tensor& tokens = inputs.front();
  if (inputs.size() == 2) return packing_of(inputs[1]).positions.view(tokens.sizes()).to(tokens.device());
  std::int64_t past = 0;
  if (SequenceMemory* memory = SequenceMemory::current()) {
    auto& mine = memory->of_call();
    if (!mine.empty()) past = mine[0].item<std::int64_t>();
    mine = {torch::full({}, past + tokens.size(1), torch::kInt64)};
  }
  const auto options = torch::TensorOptions(torch::kInt64).device(tokens.device());
  return torch::arange(past, past + tokens.size(1), options).unsqueeze(0);
}

}  // namespace penstock::hf
