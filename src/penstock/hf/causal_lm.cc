#include "penstock/hf/causal_lm.h"

#include "penstock/base/error.h"
#include "penstock/model/sequence_memory.h"

namespace penstock::hf {
namespace {

/// Throws ConfigError for tokens that the model cannot take. In a session counts the tokens so far.
void check_tokens(const torch::Tensor& tokens, const Config& config) {
  require<ConfigError>(tokens.dim() == 2 && tokens.scalar_type() == torch::kInt64, "tokens are [n, T] of int64, not ",
                       tokens.sizes(), " of ", tokens.scalar_type(), ": pass token ids");
  std::int64_t past = 0;
  if (SequenceMemory* memory = SequenceMemory::current()) {
    auto& mine = memory->of_call();
    if (!mine.empty()) past = mine[0].item<std::int64_t>();
    mine = {torch::full({}, past + tokens.size(1), torch::kInt64)};
  }
  require<ConfigError>(past + tokens.size(1) <= config.context, "a sequence of ", past + tokens.size(1),
                       " tokens, but the model's context is ", config.context, ": pass a shorter one");
  if (tokens.numel() == 0) return;
  const auto [least, most] = torch::aminmax(tokens);
  if (least.item<std::int64_t>() >= 0 && most.item<std::int64_t>() < config.vocabulary) return;
  const torch::Tensor wrong = ((tokens < 0) | (tokens >= config.vocabulary)).nonzero()[0].cpu();
  const std::int64_t row = wrong[0].item<std::int64_t>(), position = wrong[1].item<std::int64_t>();
  throw ConfigError(say("token ", tokens[row][position].item<std::int64_t>(), " at position ", past + position,
                        " of row ", row, ", but the vocabulary has ", config.vocabulary,
                        " tokens: use the model's own tokenizer"));
}

/// Of x [n, T, width] the positions whose logits will be read: all, or the last one.
torch::Tensor read_positions(const Tensors& x) {
  const SequenceMemory* memory = SequenceMemory::current();
  return memory && memory->wants_last_position ? x[0].narrow(1, x[0].size(1) - 1, 1) : x[0];
}

}  // namespace

CausalLm::CausalLm(const Config& config, const std::string& blocks) : config_(config) {
  add(config.prefix, base_);
  base_.add(blocks, blocks_);
}

void CausalLm::add_block(std::unique_ptr<Cell> block) {
  block->is_block = true;
  blocks_.add(std::to_string(all_blocks_.size()), *block);
  all_blocks_.push_back(std::move(block));
}

Cell& CausalLm::block(std::int64_t index) {
  require<ConfigError>(index >= 0 && index < config_.layers, "block ", index, " of a model with ", config_.layers,
                       " blocks: they count from 0");
  return *all_blocks_[static_cast<std::size_t>(index)];
}

Values CausalLm::forward_many(Values inputs) {
  require<ConfigError>(inputs.size() == 1 || inputs.size() == 2, "a language model is called with ", inputs.size(),
                       " values: pass tokens, or tokens and documents");
  inputs[0] = apply("check_tokens",
                    [config = config_](const Tensors& x) {
                      check_tokens(x[0], config);
                      return x[0];
                    },
                    {inputs[0]});
  Values x{embed(inputs)};
  if (inputs.size() == 2) x.push_back(inputs[1]);
  for (const auto& block : all_blocks_) x[0] = (*block)(x).front();
  return {head(apply("read_positions", read_positions, {x[0]}))};
}

}  // namespace penstock::hf
