#include "penstock/train/generator.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/zoo/gpt.h"
#include "tests/base/error_text.h"

namespace penstock::test::generator_test {
namespace {

constexpr GptOptions model_of(std::int64_t context) {
  return {.vocabulary = 11, .context = context, .width = 12, .layers = 3, .heads = 2, .dropout = 0.3};
}
constexpr GptOptions small = model_of(12), large = model_of(24);
const std::vector<Tokens> prompts{{1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10, 0, 1}, {3, 3}, {9, 1}};

struct Job {
  WorldOptions world;
  int micro_batches = 2;
  std::string schedule = "";
  GptOptions model = small;
};

Generated run(const Job& job, const GenerateOptions& options, const std::vector<Tokens>& from = prompts) {
  Gpt gpt(job.model);
  World world(job.world);
  Pipeline pipeline(world, gpt, next_token_loss,
                    {.micro_batches = job.micro_batches, .schedule = job.schedule, .seed = 8});
  return Generator(pipeline, options).generate(from);
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

TEST(Generator, equals_generation_without_sessions) {
  for (const double temperature : {0.0, 1.0}) {
    // No sequence exceeds the context of 12: the longest prompt has 8 tokens.
    const GenerateOptions options{.tokens = 4, .context = 12, .sampling = {.temperature = temperature}, .seed = 5};
    const Generated generated = run({.world = {.stages = 1}}, options);
    EXPECT_EQ(generated.sequences, without_memory(options)) << temperature;
    EXPECT_EQ(generated.tokens, 20);
    EXPECT_GT(generated.tokens_per_second(), 0);
  }
}

TEST(Generator, is_equal_for_every_number_of_stages_and_replicas) {
  // Exceeds the context several times.
  const GenerateOptions options{.tokens = 30, .context = 12, .at_context_end = ContextEnd::restart, .seed = 5};
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

TEST(Generator, refuses_invalid_arguments) {
  const auto refusal = [](const GenerateOptions& options, const std::vector<Tokens>& from) {
    return error_text<ConfigError>([&] { run({.world = {.stages = 1}}, options, from); });
  };
  EXPECT_TRUE(says(refusal({}, {}), "at least one prompt"));
  EXPECT_TRUE(says(refusal({}, {{1}, {}}), "an empty prompt"));
  EXPECT_TRUE(says(refusal({.tokens = -1}, prompts), "generate -1 tokens"));
  EXPECT_TRUE(says(refusal({.context = 1}, prompts), "a context of 1"));
  EXPECT_TRUE(says(refusal({.sampling = {.temperature = -1}}, prompts), "a temperature of -1"));
  EXPECT_TRUE(says(refusal({.context = 7}, prompts), "prompt of 8 tokens", "is 7"));
  EXPECT_TRUE(says(refusal({.seeds = {1, 2}}, prompts), "2 seeds for 5 prompts"));
  EXPECT_EQ(run({.world = {.stages = 1}}, {.tokens = 0, .context = 12}).sequences, prompts);
}

TEST(Generator, ends_sequences_at_stop_tokens_by_the_caller_and_at_the_context) {
  const GenerateOptions plain{.tokens = 9, .context = 24, .seed = 5};
  const Generated whole = run({.world = {.stages = 2}, .model = large}, plain);
  EXPECT_EQ(whole.ends, std::vector<SequenceEnd>(prompts.size(), SequenceEnd::length));
  const std::int64_t stop = whole.sequences[0][5];  // the third token of the first continuation

  GenerateOptions stopping = plain;
  stopping.stop_tokens = {stop};
  const Generated stopped = run({.world = {.stages = 2}, .model = large}, stopping);
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto begin = whole.sequences[i].begin() + static_cast<std::ptrdiff_t>(prompts[i].size());
    const auto found = std::find(begin, whole.sequences[i].end(), stop);
    const bool is_found = found != whole.sequences[i].end();
    EXPECT_EQ(stopped.sequences[i], Tokens(whole.sequences[i].begin(), found + (is_found ? 1 : 0))) << i;
    EXPECT_EQ(stopped.ends[i], is_found ? SequenceEnd::stop_token : SequenceEnd::length) << i;
    tokens += static_cast<std::int64_t>(stopped.sequences[i].size() - prompts[i].size());
  }
  EXPECT_EQ(stopped.tokens, tokens);

  GenerateOptions watched = plain;
  std::vector<Tokens> seen = prompts;
  watched.on_token = [&](std::size_t prompt, std::int64_t token) {
    seen[prompt].push_back(token);
    return seen[prompt].size() == prompts[prompt].size() + 2;
  };
  const Generated by_caller = run({.world = {.stages = 2}, .model = large}, watched);
  EXPECT_EQ(by_caller.sequences, seen);
  EXPECT_EQ(by_caller.ends, std::vector<SequenceEnd>(prompts.size(), SequenceEnd::stopped));
  EXPECT_EQ(by_caller.tokens, 10);

  GenerateOptions bounded = plain;
  bounded.context = 10;
  const Generated at_end = run({.world = {.stages = 2}, .model = large}, bounded);
  EXPECT_EQ(at_end.sequences[2], Tokens(whole.sequences[2].begin(), whole.sequences[2].begin() + 10));
  EXPECT_EQ(at_end.ends[2], SequenceEnd::context);
  EXPECT_EQ(at_end.ends[1], SequenceEnd::length);
}

TEST(Generator, draws_by_the_seed_of_each_prompt) {
  GenerateOptions options{.tokens = 4, .context = 12, .seed = 5};
  const Job one_session{.world = {.stages = 2}, .micro_batches = 1};
  const auto texts = [&](const std::vector<Tokens>& from, const std::vector<std::uint64_t>& seeds) {
    options.seeds = seeds;
    return run(one_session, options, from).sequences;
  };
  const Tokens prompt = prompts[0];
  const std::vector<Tokens> three = texts({prompt, prompt, prompt}, {7, 8, 7});
  EXPECT_EQ(three[0], three[2]);
  EXPECT_NE(three[0], three[1]);
  EXPECT_EQ(texts({prompt, prompt, prompt}, {8, 7, 9})[1], three[0]) << "the place among the prompts counts";
}

/// A Gpt that counts the positions that it computes.
struct Counted : Cell {
  Counted() { add("gpt", gpt); }
  Value forward(Value tokens) override {
    const auto count = [this](const Tensors& x) {
      positions += x[0].size(1);
      return x[0];
    };
    return gpt(apply("count", count, {tokens}));
  }

  Gpt gpt{large};
  std::atomic<std::int64_t> positions = 0;
};

TEST(Generator, continues_a_conversation_without_computing_it_again) {
  const std::vector<Tokens> first{{1, 2, 3}};
  const GenerateOptions options{.tokens = 4, .context = 24, .seed = 5};
  Counted model;
  World world({.stages = 2});
  Pipeline pipeline(world, model, next_token_loss, {.seed = 8});
  Generator generator(pipeline, options);
  std::vector<Tokens> second{generator.generate(first).sequences[0]};
  EXPECT_EQ(model.positions, 6);  // the last token is not fed
  second[0].insert(second[0].end(), {7, 8});
  const Generated continued = generator.generate(second);
  EXPECT_EQ(model.positions, 12);
  EXPECT_EQ(continued.sequences, Generator(pipeline, options).generate(second).sequences);
  EXPECT_EQ(model.positions, 24);
  EXPECT_EQ(generator.generate(first).sequences[0].size(), 7U);
  EXPECT_EQ(model.positions, 30) << "other prompts begin anew";
}

}  // namespace
}  // namespace penstock::test::generator_test
