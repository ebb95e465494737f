// What state_dict() returns and load_state_dict() accepts: names, order, values, whatever the layout.
#include <gtest/gtest.h>

#include "penstock/penstock.h"
#include "penstock/zoo/gpt.h"
#include "tests/base/error_text.h"
#include "tests/support/expect_same.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::state_dict_test {
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

struct NormalisedImpl : torch::nn::Module {
  struct InnerImpl : torch::nn::Module {
    torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(6));
    torch::nn::Linear linear = register_module("linear", torch::nn::Linear(6, 6));
  };
  TORCH_MODULE(Inner);
  Inner inner = register_module("inner", Inner());
  torch::Tensor scale = register_parameter("scale", torch::ones({6}));
  torch::Tensor count = register_buffer("count", torch::zeros({1}));
  torch::Tensor forward(const torch::Tensor& x) { return inner->linear(inner->norm(x * scale)); }
};
TORCH_MODULE(Normalised);

/// Layers are called in another order than they were added in; "late" owns a weight that is used first by "first"; and
/// one layer has tensors in submodules.
struct Jumbled : Cell {
  struct Block : Cell {
    Layer normalised = add("normalised", [] { return Normalised(); });
    Parameter shift = add_parameter("shift", [] { return torch::zeros({6}); });
    Value forward(Value x) override { return normalised(x) + shift.value(); }
  };
  Block block;
  Layer late = add("late", [] { return torch::nn::Linear(6, 6); });
  Layer last = add("last", [] { return torch::nn::Linear(6, 4); });
  Layer first = add("first", [] { return torch::nn::Linear(6, 6); });
  Jumbled() {
    add("block", block);
    first.tie("weight", late, "weight");
  }
  Value forward(Value x) override { return last(late(block(relu(first(x))))); }
};

TEST(StateDict, has_the_order_of_the_network_for_every_partition) {
  const std::vector<std::string> order{"late.weight",
                                       "late.bias",
                                       "last.weight",
                                       "last.bias",
                                       "first.bias",
                                       "block.normalised.scale",
                                       "block.normalised.count",
                                       "block.normalised.inner.norm.weight",
                                       "block.normalised.inner.norm.bias",
                                       "block.normalised.inner.norm.running_mean",
                                       "block.normalised.inner.norm.running_var",
                                       "block.normalised.inner.norm.num_batches_tracked",
                                       "block.normalised.inner.linear.weight",
                                       "block.normalised.inner.linear.bias",
                                       "block.shift"};
  EXPECT_EQ(Jumbled().state_dict().keys(), order);
  for (const auto& [stages, replicas] : {std::pair{1, 1}, {2, 1}, {3, 2}})
    for (const char* schedule : {"1f1b", "zb-v"}) {
      World world({.stages = stages, .replicas = replicas});
      Jumbled network;
      Pipeline pipeline(world, network, cross_entropy, {.schedule = schedule, .partition = "uniform"});
      WeightAverage average(pipeline, 0.5);
      for (const StateDict& state : {pipeline.state_dict(), pipeline.local_state_dict(), average.state_dict()})
        EXPECT_EQ(state.keys(), order) << stages << " " << schedule;
      copy_state(pipeline, network);
      expect_same(network.state_dict(), pipeline.state_dict());
    }
}

TEST(StateDict, carries_weights_from_any_layout_to_any_other) {
  Job source(1, 1, 1);
  const StateDict state = source.pipeline.state_dict();
  EXPECT_FALSE(state.contains("head.weight")) << "a tied parameter is saved once";
  for (const auto& [stages, replicas] : {std::pair{1, 1}, {2, 1}, {4, 1}, {2, 2}}) {
    Job target(stages, replicas, 2);
    ASSERT_FALSE(torch::equal(target.output(), source.output()));
    target.pipeline.load_state_dict(state);
    EXPECT_TRUE(replicas > 1 ? torch::allclose(target.output(), source.output())
                             : torch::equal(target.output(), source.output()))
        << stages;
    expect_same(target.pipeline.state_dict(), state);
  }
}

TEST(StateDict, continues_training_from_the_loaded_state) {
  Job one(1, 1, 1), other(2, 1, 2);
  other.pipeline.load_state_dict(one.pipeline.state_dict());
  const torch::Tensor tokens = torch::arange(6).view({2, 3});
  std::vector<double> losses;
  for (Job* job : {&one, &other}) {
    job->pipeline.optimize_with(sgd({.learning_rate = 0.5}));
    job->pipeline.train_step(tokens, tokens);
    losses.push_back(job->pipeline.train_step(tokens, tokens).loss());
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(StateDict, changes_all_or_nothing) {
  Job job(2, 1, 1);
  const StateDict before = job.pipeline.state_dict();
  StateDict other;
  for (const auto& [name, value] : before.pairs()) other.insert(name, torch::zeros_like(value));
  const auto refusal = [&](StateDict state) {
    const std::string text = error_text<ConfigError>([&] { job.pipeline.load_state_dict(state); });
    expect_same(job.pipeline.state_dict(), before);
    return text;
  };
  StateDict less = other, more = other, larger = other, wider = other, none = other;
  less.erase("norm.bias");
  more.insert("block9.norm.bias", torch::zeros({8}));
  larger["norm.bias"] = torch::zeros({9});
  wider["norm.bias"] = torch::zeros({8}, torch::kFloat64);
  none["norm.bias"] = torch::Tensor();
  EXPECT_EQ(refusal(less), "the network has 'norm.bias' of shape [8], which the state does not have");
  EXPECT_EQ(refusal(more), "the state has 'block9.norm.bias', which the network does not have");
  EXPECT_EQ(refusal(larger), "'norm.bias' is float of shape [8] in the network and float of shape [9] in the state");
  EXPECT_TRUE(says(refusal(wider), "float of shape [8] in the network and double"));
  EXPECT_TRUE(says(refusal(none), "and nothing of shape [] in the state"));
  job.pipeline.load_state_dict(other);
  EXPECT_EQ(job.pipeline.state_dict()["norm.bias"].abs().sum().item<float>(), 0);
}

}  // namespace
}  // namespace penstock::test::state_dict_test
