#include "penstock/zoo/gpt.h"
#include "penstock/zoo/attention.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/pipeline/pipeline.h"
#include "penstock/train/train.h"
#include "tests/base/error_text.h"
#include "tests/support/expect_same.h"

namespace penstock::test::gpt_test {
namespace {

constexpr GptOptions small{.vocabulary = 11, .context = 8, .width = 12, .layers = 2, .heads = 3, .dropout = 0};

torch::Tensor tokens_of(std::int64_t rows, std::int64_t length) {
  torch::manual_seed(3);
  return torch::randint(0, 11, {rows, length}, torch::kInt64);
}

TEST(Gpt, is_partitioned_between_blocks) {
  Gpt gpt({.vocabulary = 200, .context = 8, .width = 12, .layers = 5, .heads = 3});
  World world({.stages = 3});
  // Of 12 * 12 weights an embedding counts nothing, a block about 12, and the head 200 / 12.
  EXPECT_EQ(describe_stages(Pipeline(world, gpt, next_token_loss)),
            (std::vector<std::string>{"stage 0: positions, position_embedding, token_embedding, add, dropout, block0-1",
                                      "stage 1: block2-3", "stage 2: block4, norm, head"}));
  EXPECT_EQ(describe_stages(Pipeline(world, gpt, next_token_loss, {.partition = "block1,block3"})),
            (std::vector<std::string>{"stage 0: positions, position_embedding, token_embedding, add, dropout, block0",
                                      "stage 1: block1-2", "stage 2: block3-4, norm, head"}));
  EXPECT_EQ(describe_stages(Pipeline(world, gpt, next_token_loss, {.partition = "block0.feed_forward,block3"}))[0],
            "stage 0: positions, position_embedding, token_embedding, add, dropout, block0.attention, add_2");
}

TEST(Gpt, names_a_token_or_target_that_the_vocabulary_lacks) {
  Gpt gpt(small);
  World world({.stages = 2});
  Pipeline pipeline(world, gpt, next_token_loss);
  torch::Tensor tokens = tokens_of(2, 8).clone(), targets = tokens.clone();
  tokens[1][3] = 11;
  EXPECT_TRUE(says(error_text<StepFailure>([&] { pipeline.evaluate(tokens, targets).loss(); }),
                   "'token_embedding': the index 11 at [1, 3] is not in its table of 11 rows: pass 0 to 10"));
  EXPECT_TRUE(says(error_text<StepFailure>([&] { pipeline.evaluate(targets, tokens).loss(); }),
                   "next_token_loss: the target 11 at [1, 3] is not one of the output's 11 classes"));
  const auto of_torch = [](const torch::Tensor& output, const torch::Tensor& target) {
    return torch::nn::functional::cross_entropy(output.flatten(0, 1), target.flatten());
  };
  Pipeline other(world, gpt, mean_loss("my_loss", of_torch));
  EXPECT_TRUE(says(error_text<StepFailure>([&] { other.evaluate(targets, tokens.to(torch::kInt32)).loss(); }),
                   "the loss 'my_loss': "));
}

/// The model in plain operations, as in the papers, one sequence at a time.
torch::Tensor plain(const torch::Tensor& tokens, const StateDict& p, std::int64_t heads) {
  const std::int64_t length = tokens.size(1), width = p["norm.weight"].size(0);
  const auto norm = [&](const torch::Tensor& x, const std::string& name) {
    return torch::layer_norm(x, {width}, p[name + ".weight"], p[name + ".bias"]);
  };
  const auto linear = [&](const torch::Tensor& x, const std::string& name) {
    return torch::matmul(x, p[name + ".weight"].t()) + p[name + ".bias"];
  };
  std::vector<torch::Tensor> rows;
  for (std::int64_t row = 0; row < tokens.size(0); ++row) {
    torch::Tensor x =
        p["token_embedding.weight"].index_select(0, tokens[row]) + p["position_embedding.weight"].narrow(0, 0, length);
    for (int block = 0; p.contains("block" + std::to_string(block) + ".attention.qkv.weight"); ++block) {
      const std::string name = "block" + std::to_string(block);
      const auto parts = linear(norm(x, name + ".attention.norm"), name + ".attention.qkv").chunk(3, 1);
      std::vector<torch::Tensor> mixed;
      for (std::int64_t head = 0; head < heads; ++head) {
        const std::int64_t size = width / heads;
        const auto of_head = [&](const torch::Tensor& part) { return part.narrow(1, head * size, size); };
        torch::Tensor scores = torch::matmul(of_head(parts[0]), of_head(parts[1]).t()) / std::sqrt(double(size));
        scores.masked_fill_(torch::ones({length, length}, torch::kBool).triu(1), -1e30);
        mixed.push_back(torch::matmul(scores.softmax(1), of_head(parts[2])));
      }
      x = x + linear(torch::cat(mixed, 1), name + ".attention.projection");
      const torch::Tensor up = linear(norm(x, name + ".feed_forward.norm"), name + ".feed_forward.up");
      x = x + linear(torch::gelu(up, "tanh"), name + ".feed_forward.down");
    }
    const auto head = p.contains("head.weight") ? p["head.weight"] : p["token_embedding.weight"];
    rows.push_back(torch::matmul(norm(x, "norm"), head.t()));
  }
  return torch::stack(rows);
}

TEST(Gpt, equals_the_plain_formulas) {
  for (const bool tied : {true, false}) {
    GptOptions options = small;
    options.tied_head = tied;
    Gpt gpt(options);
    const auto values = gpt.state_dict(4);
    EXPECT_EQ(values.contains("head.weight"), !tied);
    const torch::NoGradGuard no_grad;
    const torch::Tensor logits = gpt(Value(tokens_of(3, 8))).tensor();
    ASSERT_EQ(logits.sizes(), (torch::IntArrayRef{3, 8, 11}));
    EXPECT_TRUE(torch::allclose(logits, plain(tokens_of(3, 8), values, 3), 1e-4, 1e-5));
  }
}

TEST(Gpt, has_the_initial_weights_of_gpt_2) {
  Gpt gpt({.vocabulary = 50, .context = 30, .width = 64, .layers = 2, .heads = 2, .dropout = 0});
  const auto values = gpt.state_dict(4);
  const auto deviation = [&](const std::string& name) { return values[name].std().item<double>(); };
  EXPECT_NEAR(deviation("token_embedding.weight"), 0.02, 0.002);
  EXPECT_NEAR(deviation("block1.feed_forward.up.weight"), 0.02, 0.002);
  EXPECT_NEAR(deviation("block1.feed_forward.down.weight"), 0.01, 0.001);
  EXPECT_NEAR(deviation("block0.attention.projection.weight"), 0.01, 0.001);
  EXPECT_EQ(values["block0.attention.qkv.bias"].abs().max().item<float>(), 0);
}

TEST(Gpt, refuses_invalid_arguments) {
  EXPECT_EQ(error_text<ConfigError>([] { Gpt({.width = 10, .heads = 3}); }),
            "a GPT of width 10 with 3 heads: give a number of heads that divides the width");
  EXPECT_EQ(error_text<ConfigError>([] { Gpt({.layers = 0}); }), "a GPT with layers = 0: give at least 1");
  Gpt gpt(small);
  EXPECT_TRUE(
      says(error_text<ConfigError>([&] { gpt(Value(tokens_of(1, 9))); }), "a sequence of 9 tokens", "context is 8"));
  EXPECT_TRUE(says(error_text<ConfigError>([&] { gpt.block(2); }), "block 2 of a GPT of 2 layers"));
}

/// The state contains logits after the last step.
Trained train(int stages, const std::string& schedule, bool tied) {
  GptOptions options = small;
  options.tied_head = tied;
  options.dropout = 0.2;
  Gpt gpt(options);
  World world({.stages = stages});
  Pipeline pipeline(world, gpt, next_token_loss,
                    {.micro_batches = 4, .schedule = schedule, .clip_norm = 1.0, .seed = 6});
  pipeline.optimize_with(adamw({.learning_rate = 1e-2, .weight_decay = 0.1}));
  Trained run;
  for (const std::int64_t length : {8, 5, 7}) {
    torch::Tensor tokens = tokens_of(5, length + 1), targets = tokens.narrow(1, 1, length).clone();
    targets.index_put_({0}, -100);  // a row that does not count
    run.losses.push_back(pipeline.train_step(tokens.narrow(1, 0, length), targets).loss());
  }
  run.state = pipeline.state_dict();
  run.state.insert("logits", pipeline.infer(tokens_of(5, 8)).output());
  return run;
}

TEST(Gpt, trains_bitwise_equal_on_any_number_of_stages) {
  for (const bool tied : {true, false}) {
    const Trained alone = train(1, "1f1b", tied);
    EXPECT_LT(alone.losses.back(), alone.losses.front());
    for (const auto& [stages, schedule] :
         {std::pair{2, "1f1b"}, {3, "gpipe"}, {4, "1f1b"}, {2, "zb-h1"}, {2, "interleaved"}, {2, "zb-v"}})
      expect_same(alone, train(stages, schedule, tied), say(stages, " ", schedule));
  }
}

TEST(Gpt, continues_a_sequence_piece_by_piece) {
  torch::Tensor first;
  for (const int stages : {1, 2, 4}) {
    Gpt gpt(small);
    World world({.stages = stages});
    Pipeline pipeline(world, gpt, next_token_loss, {.micro_batches = 2, .seed = 6});
    const torch::Tensor tokens = tokens_of(3, 8), whole = pipeline.infer(tokens).output();
    const InferenceSession session(pipeline);
    std::vector<torch::Tensor> pieces;
    std::int64_t at = 0;
    for (const std::int64_t length : {3, 1, 2, 1, 1}) {
      pieces.push_back(pipeline.infer(tokens.narrow(1, at, length), {.session = session}).output());
      at += length;
    }
    const torch::Tensor joined = torch::cat(pieces, 1);
    EXPECT_TRUE(torch::allclose(joined, whole, 1e-4, 1e-5)) << stages;
    if (stages == 1) first = joined;
    EXPECT_TRUE(torch::equal(joined, first)) << stages;
    const InferResult beyond = pipeline.infer(tokens.narrow(1, 0, 1), {.session = session});
    EXPECT_TRUE(says(error_text<RankFailure>([&] { beyond.outputs(); }), "a sequence of 9 tokens", "context is 8"));
  }
}

// The fused autograd node equals torch's attention on split queries, keys and values, bitwise.
TEST(CausalAttention, equals_attention_of_split_queries_keys_and_values) {
  torch::manual_seed(3);
  const torch::Tensor both = torch::randn({2, 7, 36}), dy = torch::randn({2, 7, 12});
  const torch::Tensor whole = both.clone().requires_grad_(), parts = both.clone().requires_grad_();
  const torch::Tensor y = CausalAttention(3)(whole);
  const auto heads = [&](std::int64_t which) {
    return parts.narrow(2, 12 * which, 12).view({2, 7, 3, 4}).transpose(1, 2);
  };
  const torch::Tensor wanted = torch::scaled_dot_product_attention(heads(0), heads(1), heads(2), {}, 0, true)
                                   .transpose(1, 2)
                                   .reshape({2, 7, 12});
  EXPECT_TRUE(torch::equal(y, wanted));
  EXPECT_TRUE(torch::equal(torch::autograd::grad({y}, {whole}, {dy}).front(),
                           torch::autograd::grad({wanted}, {parts}, {dy}).front()));
}

}  // namespace
}  // namespace penstock::test::gpt_test
