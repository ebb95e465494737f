// Ordinary attention code, run standalone with tensors and traced into a pipeline.
#include "penstock/model/value.h"
#include "penstock/model/graph.h"

#include <gtest/gtest.h>

#include "penstock/penstock.h"
#include "tests/base/error_text.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::value_test {
namespace {

/// Multi-head attention as written for tensors: it reads sizes, splits heads and makes a mask from sizes.
struct Attention : Cell {
  static constexpr std::int64_t heads = 4;
  Layer in = add("in", [] { return torch::nn::Linear(16, 48); });
  Layer out = add("out", [] { return torch::nn::Linear(16, 16); });

  Value forward(Value x) override {
    const auto n = x.size(0), length = x.size(1), width = x.size(-1);
    const Values parts = in(x).split(width, 2);
    const auto by_heads = [&](const Value& v) { return v.view({n, length, heads, width / heads}).transpose(1, 2); };
    const Value q = by_heads(parts[0]), k = by_heads(parts[1]), v = by_heads(parts[2]);
    const Value scores = q.matmul(k.transpose(-2, -1)) / std::sqrt(static_cast<double>(width / heads));
    const torch::Tensor later = torch::ones({length, length}, torch::kBool).triu(1);
    const Value mixed = scores.masked_fill(later, -1e9).softmax(-1).matmul(v);
    return out(mixed.transpose(1, 2).contiguous().view({n, length, width}));
  }
};

struct Classifier : Cell {
  Layer embed = add("embed", [] { return torch::nn::Embedding(11, 16); });
  Attention first, second;
  Layer head = add("head", [] { return torch::nn::Linear(16 * 5, 3); });
  Classifier() {
    add("first", first);
    add("second", second);
  }
  Value forward(Value tokens) override {
    Value x = embed(tokens);
    x = x + first(x);
    x = x + second(x * 0.5);
    return head(x.reshape({x.size(0), -1}));
  }
};

TEST(Value, attention_without_apply_equals_standalone_in_a_pipeline) {
  torch::manual_seed(3);
  const torch::Tensor tokens = torch::randint(11, {14, 5}), targets = torch::arange(14) % 3;
  Classifier network;
  const auto parameters = network.parameters(4);
  const torch::Tensor alone =
      torch::cat({network(tokens.narrow(0, 0, 7)).tensor(), network(tokens.narrow(0, 7, 7)).tensor()});
  std::vector<double> losses;
  for (const int stages : {1, 2, 4}) {
    World world({.stages = stages});
    Pipeline pipeline(world, network, cross_entropy,
                      {.micro_batches = 2, .example_inputs = {tokens.narrow(0, 0, 3)}, .seed = 4});
    EXPECT_TRUE(alone.equal(pipeline.infer(tokens).output()));
    pipeline.optimize_with(sgd({.learning_rate = 0.1}));
    for (const std::int64_t samples : {14, 9}) {  // micro-batches of 7, 5 and 4
      const double loss = pipeline.train_step(tokens.narrow(0, 0, samples), targets.narrow(0, 0, samples)).loss();
      if (stages == 1)
        losses.push_back(loss);
      else
        EXPECT_EQ(loss, losses[samples == 9]);
    }
  }
  const double plain = torch::nn::functional::cross_entropy(alone, targets).item<double>();
  EXPECT_NEAR(plain, losses[0], 1e-5);
}

// Otherwise a longer sequence would be treated as more samples.
TEST(Value, refuses_a_shape_other_than_that_of_the_sample) {
  torch::manual_seed(3);
  PipelineOf<Classifier> pipeline({.stages = 2}, {.example_inputs = {torch::zeros({1, 5}, torch::kInt64)}});
  EXPECT_EQ(pipeline.infer(torch::randint(11, {4, 5})).output().size(0), 4);
  const std::string text = error_text<Failure>([&] {
    static_cast<void>(pipeline.infer(torch::randint(11, {4, 10})).output());
  });
  EXPECT_TRUE(says(text, "view", "[4, 10, 16]", "[n, 5, 16]", "sample")) << text;
}

/// Calls `look` with its traced input.
struct Looking : Cell {
  std::function<Value(Value)> look;
  Layer norm = add("norm", [] { return torch::nn::BatchNorm1d(6); });
  Layer lstm = add("lstm", [] { return torch::nn::LSTM(6, 8); });
  Value forward(Value x) override { return look(x); }
};

TEST(Value, shape_and_dtype_follow_from_a_sample) {
  Looking network;
  bool looked = false;
  network.look = [&](Value x) {
    EXPECT_EQ(x.dim(), 2);
    EXPECT_EQ(static_cast<std::int64_t>(x.size(1)), 6);
    EXPECT_FALSE(x.size(0).is_number());
    EXPECT_EQ((x.size(0) * 6 / 2).factor(), 3);
    EXPECT_EQ(static_cast<std::int64_t>(x.size(0) * 6 / x.size(0)), 6);
    EXPECT_TRUE(
        says(error_text<ScheduleError>([&] { static_cast<void>(1.0 / x.size(0)); }), "number of samples", "auto n"));
    EXPECT_TRUE(says(error_text<ScheduleError>([&] { static_cast<void>(x.size(0) / 4); }), "evenly"));
    EXPECT_TRUE(says(error_text<ScheduleError>([&] { x.size(2); }), "dimension 2", "2 dimensions"));
    const Value y = network.norm(x);
    EXPECT_EQ(y.scalar_type(), torch::kFloat32);
    const Values all = network.lstm.call({y.unsqueeze(0)});
    EXPECT_EQ(static_cast<std::int64_t>(all[0].size(2)), 8);
    EXPECT_EQ((y.transpose(0, 1).reshape({2, 3, y.size(0)}).size(2)).factor(), 1);
    EXPECT_EQ(x.flatten(0, 1).size(0).factor(), 6);
    const Value measured = apply(
        "measured", [](const Tensors& t) { return t[0] * torch::ones({5}); }, Values{y});
    EXPECT_TRUE(
        says(error_text<ScheduleError>([&] { measured.size(0); }), "the shape of 'measured'", "samples of zeros"));
    EXPECT_TRUE(says(error_text<ScheduleError>([&] { y + torch::ones({6}).requires_grad_(); }), "'add'",
                     "requires a gradient", "add_parameter"));
    looked = true;
    return y;
  };
  trace_graph(network, 1, {{torch::zeros({4, 6})}});
  EXPECT_TRUE(looked);
}

TEST(Value, samples_along_another_dimension_and_none) {
  Looking network;
  network.look = [&](Value x) {
    EXPECT_EQ(static_cast<std::int64_t>(x.size(0)), 4);
    EXPECT_FALSE(x.size(1).is_number());
    return x;
  };
  trace_graph(network, 1, {{torch::zeros({4, 6})}, {1}});
  network.look = [&](Value x) {
    EXPECT_EQ(static_cast<std::int64_t>(x.size(0)) + static_cast<std::int64_t>(x.size(1)), 10);
    return x;
  };
  trace_graph(network, 1, {{torch::zeros({4, 6})}, {std::nullopt}});
}

}  // namespace
}  // namespace penstock::test::value_test
