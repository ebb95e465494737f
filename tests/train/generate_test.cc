#include "penstock/train/generate.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

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

}  // namespace
}  // namespace penstock::test::generate_test
