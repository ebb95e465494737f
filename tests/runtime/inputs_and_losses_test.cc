// Several inputs and outputs, masked targets and user-defined losses: the same for every partition, and equal to the
// plain loop.
#include <gtest/gtest.h>

#include "tests/base/error_text.h"
#include "tests/runtime/trained.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::inputs_and_losses_test {
namespace {

/// Inputs: an image and a class number, which only a late layer reads. Outputs: logits and a reconstruction.
struct TwoInTwoOut : Cell {
  Layer first = add("first", [] { return torch::nn::Linear(6, 8); });
  Layer second = add("second", [] { return torch::nn::Linear(8, 8); });
  Layer kind = add("kind", [] { return torch::nn::Embedding(3, 8); });
  Layer third = add("third", [] { return torch::nn::Linear(8, 8); });
  Layer logits = add("logits", [] { return torch::nn::Linear(8, 4); });
  Layer again = add("again", [] { return torch::nn::Linear(8, 6); });
  Values forward_many(Values x) override {
    const Value features = relu(second(relu(first(x[0]))));
    const Value last = relu(third(features + kind(x[1])));
    return {logits(last), again(features)};
  }
};

const Loss both_outputs{
    "both_outputs", nullptr, [](const torch::Tensor& target) { return static_cast<double>(target.size(0)); },
    [](const std::vector<torch::Tensor>& outputs, const torch::Tensor& target) {
      return torch::nn::functional::cross_entropy(
                 outputs[0], target, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum)) +
             outputs[1].square().sum() * 0.1;
    }};

struct Case {
  int stages = 1;
  int replicas = 1;
  int micro_batches = 4;
  std::string schedule = "1f1b";
};

Trained train_two(const Case& one) {
  PipelineOf<TwoInTwoOut> pipeline(
      {.stages = one.stages, .replicas = one.replicas},
      {.inputs = 2, .micro_batches = one.micro_batches, .schedule = one.schedule, .partition = "uniform"},
      torch_sgd(0.1), both_outputs);
  torch::manual_seed(1);
  return train(pipeline, {torch::randn({10, 6}), torch::arange(10) % 3}, torch::arange(10) % 4);
}

TEST(SeveralInputsAndOutputs, are_the_same_for_every_partition) {
  const Trained alone = train_two({});
  for (const Case& one : {Case{2}, {3}, {4}, {3, 1, 4, "zb-h1"}, {2, 1, 4, "interleaved"}, {4, 1, 4, "gpipe"}})
    expect_same(alone, train_two(one), say(one.schedule, one.stages));
  expect_close(alone, train_two({3, 2, 2}));
}

TEST(SeveralInputsAndOutputs, another_number_of_inputs_is_an_error) {
  PipelineOf<TwoInTwoOut> pipeline({.stages = 2}, {.inputs = 2, .partition = "uniform"}, both_outputs);
  EXPECT_THROW(pipeline.evaluate(torch::randn({4, 6}), torch::zeros({4}, torch::kInt64)), ConfigError);
}

/// An embedding, with sparse gradients or dense ones.
struct Words : Cell {
  explicit Words(bool sparse) : sparse_(sparse) {}
  bool sparse_;
  Layer words = add(
      "words", [sparse = sparse_] { return torch::nn::Embedding(torch::nn::EmbeddingOptions(5, 6).sparse(sparse)); });
  Layer hidden = add("hidden", [] { return torch::nn::Linear(6, 8); });
  Layer out = add("out", [] { return torch::nn::Linear(8, 4); });
  Value forward(Value x) override { return out(relu(hidden(words(x)))); }
};

Trained train_words(bool sparse, const Case& one) {
  World world({.stages = one.stages, .replicas = one.replicas});
  Words network(sparse);
  Pipeline pipeline(
      world, network, cross_entropy,
      {.micro_batches = one.micro_batches, .schedule = one.schedule, .clip_norm = 0.2, .partition = "uniform"});
  pipeline.optimize_with([](auto parameters) {
    return torch::optim::SGD(parameters, torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
  });
  Trained trained;
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor words = torch::arange(step, step + 10) % 4;  // the row of word 4 has no gradient
    trained.losses.push_back(pipeline.train_step(words, torch::arange(10) % 4).loss());
  }
  trained.state = pipeline.state_dict();
  return trained;
}

TEST(SparseGradients, train_as_dense_ones) {
  const Trained dense = train_words(false, {}), alone = train_words(true, {});
  expect_close(dense, alone);
  for (const Case& one : {Case{2}, {3, 1, 4, "zb-h1"}, {2, 1, 4, "interleaved"}})
    expect_same(alone, train_words(true, one), one.schedule);
  expect_close(dense, train_words(true, {2, 2, 2}));
}

struct Tokens : Cell {
  Layer embed = add("embed", [] { return torch::nn::Embedding(7, 5); });
  Layer body = add("body", [] { return torch::nn::Linear(5, 5); });
  Layer head = add("head", [] { return torch::nn::Linear(5, 7); });
  Value forward(Value x) override { return transpose(head(relu(body(embed(x)))), 1, 2); }
};

/// 8 sequences of 4 tokens: the first two targets of some are masked, all of the third micro-batch's.
std::pair<torch::Tensor, torch::Tensor> masked_batch() {
  const torch::Tensor tokens = torch::arange(32).view({8, 4}) % 7;
  torch::Tensor targets = (tokens + 1) % 7;
  targets.narrow(0, 0, 3).narrow(1, 0, 2).fill_(-100);
  targets.narrow(0, 4, 2).fill_(-100);
  return {tokens, targets};
}

TEST(MaskedTargets, have_no_weight) {
  const auto [tokens, targets] = masked_batch();
  Tokens standalone;
  const auto loss = [&, inputs = tokens, wanted = targets] {
    return torch::nn::functional::cross_entropy(standalone(Value(inputs)).tensor(), wanted);
  };
  const Trained plain = train_plainly(standalone, loss, {.steps = 1, .rate = 0.5});
  for (const int replicas : {1, 2}) {
    PipelineOf<Tokens> pipeline({.stages = 3, .replicas = replicas},
                                {.micro_batches = 4 / replicas, .partition = "uniform"}, torch_sgd(0.5));
    const StepResult result = pipeline.train_step(tokens, targets);
    EXPECT_NEAR(result.loss(), plain.losses[0], 1e-6);
    EXPECT_EQ(result.weight(), 18);
    expect_close(plain.state, pipeline.state_dict());
  }
}

TEST(Losses, without_a_function_are_an_error) {
  World world({.stages = 2});
  Tokens network;
  Loss none;
  none.name = "none";
  EXPECT_TRUE(says(error_text<ConfigError>([&] { Pipeline(world, network, none, {.partition = "uniform"}); }), "'none'",
                   "Loss::sum"));
}

TEST(Losses, that_are_not_scalars_are_an_error) {
  Loss rows = cross_entropy;
  rows.name = "rows";
  rows.sum = [](const torch::Tensor& output, const torch::Tensor&) { return output.flatten(1).sum(1); };
  PipelineOf<Tokens> pipeline({.stages = 2}, {.micro_batches = 2, .partition = "uniform"}, torch_sgd(0.5), rows);
  const auto [tokens, targets] = masked_batch();
  const std::string text =
      error_text<RankFailure>([&, inputs = tokens, wanted = targets] { pipeline.train_step(inputs, wanted).loss(); });
  EXPECT_TRUE(says(text, "'rows'", "[4]", "scalar")) << text;
}

}  // namespace
}  // namespace penstock::test::inputs_and_losses_test
