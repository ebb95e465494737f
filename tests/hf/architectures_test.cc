#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/hf/attention.h"
#include "penstock/hf/model.h"
#include "penstock/model/random_place.h"
#include "penstock/model/sequence_memory.h"
#include "penstock/pipeline/pipeline.h"
#include "penstock/train/train.h"
#include "tests/base/error_text.h"
#include "tests/hf/tiny_configs.h"
#include "tests/support/expect_same.h"
#include "tests/support/temporary_folder.h"

namespace penstock::test::architectures_test {
namespace {

std::unique_ptr<hf::CausalLm> random_model(const std::string& config) {
  const TemporaryFolder folder("hf_config");
  write_bytes(folder / "config.json", config);
  return hf::load(folder.string(), {.init = hf::Init::random});
}

/// `config` with `from` replaced by `to`.
std::string changed(std::string config, const std::string& from, const std::string& to) {
  const auto at = config.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? config : config.replace(at, from.size(), to);
}

torch::Tensor tokens_of(std::int64_t rows, std::int64_t length) {
  torch::manual_seed(3);
  return torch::randint(0, tiny_vocabulary, {rows, length}, torch::kInt64);
}

struct Case {
  int stages = 1;
  std::string schedule = "1f1b";
  bool recompute = false;
  Precision precision = Precision::fp32;
};

Trained train(const std::string& config, const Case& job) {
  const auto model = random_model(config);
  World world({.stages = job.stages});
  Pipeline pipeline(world, *model, next_token_loss,
                    {.micro_batches = 4,
                     .schedule = job.schedule,
                     .recompute = job.recompute,
                     .precision = job.precision,
                     .seed = 6});
  pipeline.optimize_with(adamw({.learning_rate = 1e-2}));
  Trained run;
  for (const std::int64_t length : {12, 9}) {
    const torch::Tensor tokens = tokens_of(5, length + 1);
    run.losses.push_back(
        pipeline.train_step(tokens.narrow(1, 0, length), tokens.narrow(1, 1, length).contiguous()).loss());
  }
  run.state = pipeline.state_dict();
  run.state.insert("logits", pipeline.infer(tokens_of(5, 12)).output());
  return run;
}

TEST(HfArchitectures, train_bitwise_equal_on_any_number_of_stages) {
  for (const auto& [name, config] : tiny_configs()) {
    const Trained alone = train(config, {});
    EXPECT_EQ(alone.state.contains("lm_head.weight") || alone.state.contains("embed_out.weight"),
              name != "llama" && name != "qwen2" && name != "gemma3" && name != "gpt2" && name != "gpt_neox_sequential")
        << name;
    for (const Case& job : {Case{2, "zb-v"}, Case{3, "zb-h1"}, Case{4, "1f1b", true}})
      expect_same(alone, train(config, job), say(name, " ", job.stages, " ", job.schedule));
  }
}

TEST(HfArchitectures, train_in_bf16) {
  for (const std::string name : {"qwen3", "gemma3", "gpt2"}) {
    const std::string& config = tiny_configs().at(name);
    const Trained alone = train(config, {.precision = Precision::bf16});
    EXPECT_NEAR(alone.losses.back(), train(config, {}).losses.back(), 0.02) << name;
    expect_same(alone, train(config, {.stages = 3, .precision = Precision::bf16}), name);
  }
}

TEST(HfArchitectures, continue_a_sequence_piece_by_piece) {
  for (const auto& [name, config] : tiny_configs()) {
    const auto model = random_model(config);
    World world({.stages = 2});
    Pipeline pipeline(world, *model, next_token_loss, {.micro_batches = 2, .seed = 6});
    const torch::Tensor tokens = tokens_of(3, 16), whole = pipeline.infer(tokens).output();
    const InferenceSession session(pipeline);
    std::vector<torch::Tensor> pieces;
    std::int64_t at = 0;
    for (const std::int64_t length : {7, 1, 1, 4, 1, 2}) {
      pieces.push_back(pipeline.infer(tokens.narrow(1, at, length), {.session = session}).output());
      at += length;
    }
    EXPECT_TRUE(torch::allclose(torch::cat(pieces, 1), whole, 1e-4, 1e-5)) << name;
    const InferenceSession other(pipeline);
    const torch::Tensor last = pipeline.infer(tokens, {.session = other, .last_position = true}).output();
    EXPECT_TRUE(torch::allclose(last, whole.narrow(1, 15, 1), 1e-4, 1e-5)) << name << " " << last.sizes();
  }
}

TEST(HfArchitectures, keep_more_positions_than_the_first_buffer_has) {
  const auto model = random_model(
      changed(tiny_configs().at("llama"), "\"max_position_embeddings\": 96", "\"max_position_embeddings\": 300"));
  World world({.stages = 1});
  Pipeline pipeline(world, *model, next_token_loss, {.seed = 6});
  const torch::Tensor tokens = tokens_of(1, 200), whole = pipeline.infer(tokens).output();
  const InferenceSession session(pipeline);
  for (std::int64_t at = 0; at < 199; ++at) pipeline.infer(tokens.narrow(1, at, 1), {.session = session}).wait();
  const torch::Tensor last = pipeline.infer(tokens.narrow(1, 199, 1), {.session = session}).output();
  EXPECT_TRUE(torch::allclose(last, whole.narrow(1, 199, 1), 1e-4, 1e-5));
}

TEST(HfArchitectures, keep_the_positions_of_a_window_only) {
  constexpr std::int64_t window = 5, first = 12, length = 200;
  const BuiltLayer layer = hf::attention({.heads = 2, .key_value_heads = 2, .head_size = 4, .window = window}).build();
  torch::manual_seed(4);
  Tensors inputs;
  for (int i = 0; i < 3; ++i) inputs.push_back(torch::randn({3, length, 2 * 4}));
  const auto part_of = [&](std::int64_t at, std::int64_t count) {
    Tensors parts;
    for (const torch::Tensor& input : inputs) parts.push_back(input.narrow(1, at, count));
    return layer.forward(parts).front();
  };
  const torch::Tensor whole = part_of(0, length);
  SequenceMemory memory;
  const SequenceMemoryGuard in_session(&memory);
  RandomPlace place;
  const RandomPlaceGuard guard(place);
  place.begin_call("attend");
  Tensors pieces{part_of(0, first)};
  std::int64_t longest = 0;
  for (std::int64_t at = first, count = 1; at < length; at += count, count = std::min(at % 3 + 1, length - at)) {
    pieces.push_back(part_of(at, count));
    longest = std::max(longest, memory.of_call()[0].size(2));
  }
  EXPECT_TRUE(torch::allclose(torch::cat(pieces, 1), whole, 1e-4, 1e-5));
  EXPECT_LE(longest, first);
}

TEST(HfArchitectures, keep_documents_of_a_row_apart) {
  for (const auto& [name, config] : tiny_configs()) {
    const auto model = random_model(config);
    const torch::NoGradGuard no_grad;
    const torch::Tensor tokens = tokens_of(2, 12);
    const torch::Tensor documents =
        torch::tensor({{0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1}, {4, 4, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4}}, torch::kInt64);
    const torch::Tensor packed = (*model)(Values{tokens, documents})[0].tensor();
    const auto expect_alone = [&](std::int64_t row, std::int64_t begin, std::int64_t length) {
      const torch::Tensor own = tokens.narrow(0, row, 1).narrow(1, begin, length);
      const torch::Tensor alone = (*model)(Values{own})[0].tensor();
      EXPECT_TRUE(torch::allclose(packed.narrow(0, row, 1).narrow(1, begin, length), alone, 1e-4, 1e-5))
          << name << " " << row << " " << begin;
    };
    expect_alone(0, 0, 7);
    expect_alone(0, 7, 5);
    expect_alone(1, 0, 2);
    expect_alone(1, 2, 9);
    expect_alone(1, 11, 1);
    // One document per row needs no second input.
    const torch::Tensor rows = (*model)(Values{tokens, torch::zeros_like(tokens)})[0].tensor();
    EXPECT_TRUE(torch::equal(rows, (*model)(Values{tokens})[0].tensor())) << name;
  }
}

TEST(HfArchitectures, train_on_documents_on_two_stages) {
  const auto losses = [](int stages) {
    const auto model = random_model(tiny_configs().at("mistral"));
    World world({.stages = stages});
    Pipeline pipeline(world, *model, next_token_loss, {.inputs = 2, .micro_batches = 2, .seed = 6});
    pipeline.optimize_with(adamw());
    const torch::Tensor tokens = tokens_of(4, 13);
    const torch::Tensor documents = torch::arange(12).floor_divide(5).expand({4, 12}).contiguous();
    return pipeline.train_step({tokens.narrow(1, 0, 12), documents}, tokens.narrow(1, 1, 12).contiguous()).loss();
  };
  EXPECT_EQ(losses(1), losses(2));
}

TEST(HfArchitectures, blocks_are_cells) {
  const auto model = random_model(tiny_configs().at("gpt2"));
  EXPECT_TRUE(model->block(2).is_block);
  EXPECT_EQ(model->config().context, 96);
  EXPECT_EQ(model->config().architecture, "GPT2LMHeadModel");
  EXPECT_TRUE(says(error_text<ConfigError>([&] { model->block(3); }), "block 3 of a model with 3 blocks"));
}

TEST(HfArchitectures, refuse_what_the_model_cannot_take) {
  const auto model = random_model(tiny_configs().at("llama"));
  const auto text_of = [&](const torch::Tensor& tokens) {
    return error_text<ConfigError>([&] { (*model)(Values{tokens}); });
  };
  torch::Tensor tokens = tokens_of(2, 8);
  tokens[1][5] = tiny_vocabulary;
  EXPECT_TRUE(says(text_of(tokens), "token 61 at position 5 of row 1", "61 tokens"));
  tokens[0][7] = -1;
  EXPECT_TRUE(says(text_of(tokens), "token -1 at position 7 of row 0"));
  EXPECT_TRUE(says(text_of(tokens_of(1, 97)), "a sequence of 97 tokens", "context is 96"));
  EXPECT_TRUE(says(text_of(torch::zeros({1, 4})), "int64", "Float"));
}

TEST(HfArchitectures, refuse_configurations_that_are_not_supported) {
  const auto text_of = [](const std::string& name, const std::string& from, const std::string& to) {
    return error_text<ConfigError>([&] { random_model(changed(tiny_configs().at(name), from, to)); });
  };
  EXPECT_TRUE(
      says(text_of("llama", "LlamaForCausalLM", "BertModel"), "'BertModel'", "GPT2LMHeadModel", "MistralForCausalLM"));
  EXPECT_TRUE(says(text_of("llama3", "llama3", "longrope"), "'longrope'", "yarn"));
  EXPECT_TRUE(says(text_of("gemma3", "full_attention", "chunked_attention"), "'chunked_attention'"));
  EXPECT_TRUE(says(text_of("gpt2", "\"n_head\": 4", "\"n_head\": 5"), "'n_embd' = 32", "'n_head' = 5"));
  EXPECT_TRUE(says(text_of("llama", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"),
                   "'num_attention_heads' = 4", "'num_key_value_heads' = 3"));
  EXPECT_TRUE(says(text_of("gpt_neox_sequential", "gelu_new", "quick_gelu"), "'quick_gelu'", "silu"));
  EXPECT_TRUE(says(text_of("llama", "\"num_hidden_layers\": 3", "\"num_hidden_layers\": \"3\""),
                   "'num_hidden_layers' = \"3\"", "an integer"));
  EXPECT_TRUE(says(text_of("gemma3", "\"full_attention\", \"sliding", "\"sliding"), "2 'layer_types' for 3 layers"));
  EXPECT_TRUE(says(text_of("gemma3", "\"pad_token_id\": 0", "\"attn_logit_softcapping\": 50.0"),
                   "'attn_logit_softcapping' = 50.0"));
  EXPECT_TRUE(says(error_text<DataError>([] { hf::load("/nowhere"); }), "/nowhere/config.json"));
}

}  // namespace
}  // namespace penstock::test::architectures_test
