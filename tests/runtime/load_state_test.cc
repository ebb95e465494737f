#include "penstock/state/state_loader.h"

#include <gtest/gtest.h>

#include "penstock/zoo/gpt.h"
#include "tests/base/error_text.h"
#include "tests/support/expect_same.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::load_state_test {
namespace {

constexpr GptOptions small{.vocabulary = 7, .context = 6, .width = 8, .layers = 2, .heads = 2, .dropout = 0};

struct Job {
  explicit Job(int stages, int replicas, std::uint64_t seed)
      : world({.stages = stages, .replicas = replicas}),
        pipeline(world, gpt, next_token_loss, {.micro_batches = 2, .seed = seed}) {}
  torch::Tensor output() { return pipeline.infer(torch::arange(6).view({2, 3})).output(); }

  Gpt gpt{small};
  World world;
  Pipeline pipeline;
};

TEST(LoadState, carries_weights_from_any_layout_to_any_other) {
  Job source(1, 1, 1);
  const NamedTensors state = source.pipeline.state();
  EXPECT_FALSE(state.contains("head.weight")) << "a tied parameter is saved once";
  for (const auto& [stages, replicas] : {std::pair{1, 1}, {2, 1}, {4, 1}, {2, 2}}) {
    Job target(stages, replicas, 2);
    ASSERT_FALSE(torch::equal(target.output(), source.output()));
    target.pipeline.load_state(state);
    EXPECT_TRUE(replicas > 1 ? torch::allclose(target.output(), source.output())
                             : torch::equal(target.output(), source.output()))
        << stages;
    expect_same(target.pipeline.state(), state);
  }
}

TEST(LoadState, continues_training_from_the_loaded_state) {
  Job one(1, 1, 1), other(2, 1, 2);
  other.pipeline.load_state(one.pipeline.state());
  const torch::Tensor tokens = torch::arange(6).view({2, 3});
  std::vector<double> losses;
  for (Job* job : {&one, &other}) {
    job->pipeline.optimize_with(sgd({.learning_rate = 0.5}));
    job->pipeline.train_step(tokens, tokens);
    losses.push_back(job->pipeline.train_step(tokens, tokens).loss());
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(LoadState, changes_all_or_nothing) {
  Job job(2, 1, 1);
  const NamedTensors before = job.pipeline.state();
  NamedTensors other;
  for (const auto& [name, value] : before) other[name] = torch::zeros_like(value);
  const auto refusal = [&](NamedTensors state) {
    const std::string text = error_text<ConfigError>([&] { job.pipeline.load_state(state); });
    expect_same(job.pipeline.state(), before);
    return text;
  };
  NamedTensors less = other, more = other, larger = other, wider = other, none = other;
  less.erase("norm.bias");
  more["block9.norm.bias"] = torch::zeros({8});
  larger["norm.bias"] = torch::zeros({9});
  wider["norm.bias"] = torch::zeros({8}, torch::kFloat64);
  none["norm.bias"] = torch::Tensor();
  EXPECT_EQ(refusal(less), "the network has 'norm.bias' of shape [8], which the state does not have");
  EXPECT_EQ(refusal(more), "the state has 'block9.norm.bias', which the network does not have");
  EXPECT_EQ(refusal(larger), "'norm.bias' is float of shape [8] in the network and float of shape [9] in the state");
  EXPECT_TRUE(says(refusal(wider), "float of shape [8] in the network and double"));
  EXPECT_TRUE(says(refusal(none), "and nothing of shape [] in the state"));
  job.pipeline.load_state(other);
  EXPECT_EQ(job.pipeline.state().at("norm.bias").abs().sum().item<float>(), 0);
}

}  // namespace
}  // namespace penstock::test::load_state_test
