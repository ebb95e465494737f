#include "penstock/train/generate.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/zoo/gpt.h"
#include "tests/base/error_text.h"

namespace penstock::test::generate_test {
namespace {

constexpr GptOptions small{.vocabulary = 11, .context = 12, .width = 12, .layers = 3, .heads = 2, .dropout = 0.3};
const std::vector<Tokens> prompts{{1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10, 0, 1}, {3, 3}, {9, 1}};

struct Job {
  WorldOptions world;
  int micro_batches = 2;
  std::string schedule = "";
};

Generated run(const Job& job, const GenerateOptions& options, const std::vector<Tokens>& from = prompts) {
  Gpt gpt(small);
  World world(job.world);
  Pipeline pipeline(world, gpt, next_token_loss,
                    {.micro_batches = job.micro_batches, .schedule = job.schedule, .seed = 8});
  return generate(pipeline, from, options);
}

/// Reference without sessions: each prompt alone, with the whole sequence as input for every token.
std::vector<Tokens> without_memory(const GenerateOptions& options) {
  Gpt gpt(small);
  World world({.stages = 1});
  Pipeline pipeline(world, gpt, next_token_loss, {.seed = 8});
  std::vector<Tokens> sequences = prompts;
  for (std::size_t i = 0; i < prompts.size(); ++i)
    for (std::int64_t made = 0; made < options.tokens; ++made) {
      Tokens& row = sequences[i];
      const torch::Tensor logits = pipeline.infer(torch::tensor(row).unsqueeze(0)).output().select(1, -1).contiguous();
      row.push_back(sample_token({logits.const_data_ptr<float>(), 11}, options.sampling,
                                 uniform_number({options.seed, i, row.size()})));
    }
  return sequences;
}

TEST(Generate, equals_generation_without_sessions) {
  for (const double temperature : {0.0, 1.0}) {
    // No sequence exceeds the context of 12: the longest prompt has 8 tokens.
    const GenerateOptions options{.tokens = 4, .context = 12, .sampling = {.temperature = temperature}, .seed = 5};
    const Generated generated = run({.world = {.stages = 1}}, options);
    EXPECT_EQ(generated.sequences, without_memory(options)) << temperature;
    EXPECT_EQ(generated.tokens, 20);
    EXPECT_GT(generated.tokens_per_second(), 0);
  }
}

TEST(Generate, is_equal_for_every_number_of_stages_and_replicas) {
  const GenerateOptions options{.tokens = 30, .context = 12, .seed = 5};  // exceeds the context several times
  const Generated alone = run({.world = {.stages = 1}}, options);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    ASSERT_EQ(alone.sequences[i].size(), prompts[i].size() + 30);
    EXPECT_TRUE(std::equal(prompts[i].begin(), prompts[i].end(), alone.sequences[i].begin())) << i;
  }
  EXPECT_EQ(run({.world = {.stages = 2}}, options).sequences, alone.sequences);
  EXPECT_EQ(run({.world = {.stages = 4}}, options).sequences, alone.sequences);
  EXPECT_EQ(run({.world = {.stages = 2}, .schedule = "zb-v"}, options).sequences, alone.sequences);
  EXPECT_EQ(run({.world = {.stages = 2}, .micro_batches = 8}, options).sequences.size(), prompts.size());
  EXPECT_EQ(run({.world = {.stages = 2, .replicas = 2}}, options).sequences.size(), prompts.size());
  GenerateOptions other = options;
  other.seed = 6;
  EXPECT_NE(run({.world = {.stages = 1}}, other).sequences, alone.sequences);
}

TEST(Generate, refuses_invalid_arguments) {
  const auto refusal = [](const GenerateOptions& options, const std::vector<Tokens>& from) {
    return error_text<ConfigError>([&] { run({.world = {.stages = 1}}, options, from); });
  };
  EXPECT_TRUE(says(refusal({}, {}), "at least one prompt"));
  EXPECT_TRUE(says(refusal({}, {{1}, {}}), "an empty prompt"));
  EXPECT_TRUE(says(refusal({.tokens = -1}, prompts), "generate -1 tokens"));
  EXPECT_TRUE(says(refusal({.context = 1}, prompts), "a context of 1"));
  EXPECT_TRUE(says(refusal({.sampling = {.temperature = -1}}, prompts), "a temperature of -1"));
  EXPECT_TRUE(says(refusal({.sampling = {.top_k = -1}}, prompts), "top-k of -1"));
  EXPECT_EQ(run({.world = {.stages = 1}}, {.tokens = 0, .context = 12}).sequences, prompts);
}

const std::vector<float> logits{0, 2, 1, 2, -30};

std::map<std::int64_t, double> shares(const SamplingOptions& options) {
  std::map<std::int64_t, double> shares;
  constexpr int draws = 20000;
  for (int i = 0; i < draws; ++i) shares[sample_token(logits, options, (i + 0.5) / draws)] += 1.0 / draws;
  return shares;
}

TEST(Sampling, temperature_0_takes_the_most_likely_and_then_the_lower) {
  for (const double number : {0.0, 0.5, 0.999}) EXPECT_EQ(sample_token(logits, {.temperature = 0}, number), 1);
}

TEST(Sampling, follows_the_softmax_of_scaled_logits) {
  for (const double temperature : {0.5, 1.0, 3.0}) {
    double total = 0;
    for (const float logit : logits) total += std::exp(logit / temperature);
    for (const auto& [token, share] : shares({.temperature = temperature}))
      EXPECT_NEAR(share, std::exp(logits[static_cast<std::size_t>(token)] / temperature) / total, 2e-4) << token;
  }
}

TEST(Sampling, top_k_excludes_the_other_tokens) {
  const auto two = shares({.top_k = 2});
  EXPECT_EQ(two.size(), 2U);
  EXPECT_NEAR(two.at(1), 0.5, 1e-3);
  EXPECT_NEAR(two.at(3), 0.5, 1e-3);
  EXPECT_EQ(shares({.top_k = 100}), shares({}));
}

TEST(Sampling, is_valid_for_numbers_near_0_and_1) {
  EXPECT_EQ(sample_token(logits, {}, 0), 0);
  EXPECT_EQ(sample_token(logits, {}, 1 - 0x1p-53), 4);
  EXPECT_EQ(sample_token(logits, {.temperature = 1e-3}, 1 - 0x1p-53), 3) << "a token of no width was chosen";
}

TEST(Sampling, refuses_logits_that_are_not_finite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    EXPECT_TRUE(says(error_text<Failure>([&] { sample_token(std::vector<float>{0, bad}, {}, 0.5); }), "a logit of"));
}

TEST(UniformNumber, is_a_function_of_its_key) {
  std::set<double> seen;
  double sum = 0;
  for (std::uint64_t seed : {0, 1})
    for (std::uint64_t prompt = 0; prompt < 10; ++prompt)
      for (std::uint64_t position = 0; position < 100; ++position) {
        const double number = uniform_number({seed, prompt, position});
        EXPECT_EQ(number, uniform_number({seed, prompt, position}));
        EXPECT_TRUE(number >= 0 && number < 1);
        seen.insert(number);
        sum += number;
      }
  EXPECT_EQ(seen.size(), 2000U);
  EXPECT_NEAR(sum / 2000, 0.5, 0.03);
}
}  // namespace
}  // namespace penstock::test::generate_test
