// Parameters that several stages use: one value and one gradient for every partition, schedule and optimiser.
#include <gtest/gtest.h>

#include "penstock/penstock.h"
#include "tests/base/error_text.h"
#include "tests/support/expect_same.h"
#include "tests/support/pipeline_of.h"
#include "tests/support/trained.h"

namespace penstock::test::ties_test {
namespace {

constexpr std::int64_t vocabulary = 7, width = 6;

struct Table : Cell {
  Parameter table = add_parameter("table", [] { return torch::randn({vocabulary, width}) * 0.5; });
  Values forward_many(Values x) override { return {gather(table.value(), x[0]), table.value()}; }
};

/// A raw parameter used three times, one declared tie, and one layer called twice, all far apart.
struct TiedNetwork : Cell {
  Table embedding;
  Layer first = add("first", [] { return torch::nn::Linear(width, width); });
  Layer twice = add("twice", [] { return torch::nn::Linear(width, width); });
  std::vector<Layer> hidden;
  Layer last = add("last", [] { return torch::nn::Linear(width, width); });

  TiedNetwork() {
    add("embedding", embedding);
    for (int i = 0; i < 5; ++i) hidden.push_back(add(say("hidden", i), [] { return torch::nn::Linear(width, width); }));
    last.tie("weight", first, "weight");
  }

  Value forward(Value tokens) override {
    Values embedded = embedding(Values{tokens});
    Value x = relu(first(embedded[0]));
    x = torch_tanh(twice(x));
    for (const Layer& layer : hidden) x = x + torch_tanh(layer(x));
    x = x + matmul(softmax(matmul(x, embedded[1], {.transpose_b = true}), -1), embedded[1]);
    x = last(twice(x));
    return matmul(x, embedded[1], {.transpose_b = true});
  }

 private:
  static Value torch_tanh(const Value& x) { return penstock::tanh(x); }
};

struct TiedCase {
  std::string schedule = "1f1b";
  int stages = 1;
  int chunks = 0;
  int replicas = 1;
  int micro_batches = 4;
  std::string optimizer = "sgd";
  std::optional<double> clip_norm = std::nullopt;
  WeightGradients weight_gradients = WeightGradients::stream;

  std::string name() const { return say(schedule, " p ", stages, " v ", chunks, " d ", replicas, " ", optimizer); }
};

OptimizerFactory optimizer_of(const std::string& name) {
  if (name == "adam") return adam({.learning_rate = 0.01, .weight_decay = 0.1});
  if (name == "momentum") return sgd({.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01});
  return sgd({.learning_rate = 0.1});
}

std::pair<torch::Tensor, torch::Tensor> batch() {
  const torch::Tensor tokens = torch::arange(12) * 5 % vocabulary;
  return {tokens, (tokens + 1) % vocabulary};
}

PipelineOptions options_of(const TiedCase& one) {
  return {.micro_batches = one.micro_batches,
          .schedule = one.schedule,
          .chunks = one.chunks,
          .weight_gradients = one.weight_gradients,
          .clip_norm = one.clip_norm,
          .partition = "uniform",
          .seed = 3};
}

Trained train(const TiedCase& one) {
  PipelineOf<TiedNetwork> pipeline({.stages = one.stages, .replicas = one.replicas}, options_of(one),
                                   optimizer_of(one.optimizer));
  Trained trained;
  const auto [tokens, targets] = batch();
  for (int step = 0; step < 3; ++step) trained.losses.push_back(pipeline.train_step(tokens, targets).loss());
  trained.state = pipeline.state();
  return trained;
}

TEST(Ties, train_bitwise_the_same_for_every_partition_and_schedule) {
  for (const char* optimizer : {"sgd", "momentum", "adam"}) {
    const Trained alone = train({.optimizer = optimizer});
    for (int stages : {2, 3, 4})
      for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
        const TiedCase one{.schedule = schedule, .stages = stages, .optimizer = optimizer};
        expect_same(alone, train(one), one.name());
      }
    const TiedCase chunked{.schedule = "interleaved", .stages = 2, .chunks = 3, .optimizer = optimizer};
    expect_same(alone, train(chunked), chunked.name());
    const TiedCase v_shaped{.schedule = "zb-v", .stages = 3, .optimizer = optimizer};
    expect_same(alone, train(v_shaped), v_shaped.name());
  }
}

TEST(Ties, count_once_in_the_norm_and_are_clipped) {
  const Trained free = train({});
  const Trained alone = train({.clip_norm = 0.05});
  EXPECT_NE(free.losses, alone.losses);
  expect_same(alone, train({.schedule = "zb-h2", .stages = 3, .clip_norm = 0.05}), "zb-h2 p 3");
  expect_same(alone, train({.schedule = "looped-bfs", .stages = 2, .chunks = 2, .clip_norm = 0.05}), "looped-bfs p 2");
}

TEST(Ties, fused_weight_gradients_are_the_same_for_every_partition) {
  const TiedCase alone{.weight_gradients = WeightGradients::fused};
  const TiedCase partition{.schedule = "zb-h1", .stages = 3, .weight_gradients = WeightGradients::fused};
  expect_same(train(alone), train(partition), "fused");
}

TEST(Ties, are_summed_over_replicas) {
  const Trained alone = train({.replicas = 2, .micro_batches = 2});
  expect_same(alone, train({.stages = 3, .replicas = 2, .micro_batches = 2}), "p 3 d 2");
  const Trained one_replica = train({.micro_batches = 4});
  for (const auto& [name, value] : one_replica.state)
    EXPECT_LT((value - alone.state.at(name)).norm().item<double>(), 1e-5 * value.norm().item<double>()) << name;
}

/// Decays weights by changing their gradients, in place or not, as optimisers may.
class Decaying : public Optimizer {
 public:
  Decaying(std::vector<NamedParameter> parameters, bool in_place)
      : parameters_(std::move(parameters)), in_place_(in_place) {}

  void step() override {
    const torch::NoGradGuard no_grad;
    for (const NamedParameter& parameter : parameters_) {
      torch::Tensor value = parameter.value, gradient = parameter.value.grad();
      if (!gradient.defined()) continue;
      gradient = in_place_ ? gradient.add_(value, 0.1) : gradient.add(value, 0.1);
      value.sub_(in_place_ ? gradient.mul_(0.1) : gradient.mul(0.1));
    }
  }
  void set_learning_rate(double) override {}

 private:
  std::vector<NamedParameter> parameters_;
  bool in_place_;
};

Trained train_decaying(const TiedCase& one, bool in_place) {
  PipelineOf<TiedNetwork> pipeline({.stages = one.stages, .replicas = one.replicas}, options_of(one));
  pipeline.optimize_with(OptimizerFactory([in_place](const std::vector<NamedParameter>& parameters) {
    return std::make_unique<Decaying>(parameters, in_place);
  }));
  Trained trained;
  const auto [tokens, targets] = batch();
  for (int step = 0; step < 3; ++step) trained.losses.push_back(pipeline.train_step(tokens, targets).loss());
  trained.state = pipeline.state();
  return trained;
}

TEST(Ties, and_replicas_allow_optimisers_that_change_gradients_in_place) {
  for (const TiedCase& one : {TiedCase{.stages = 3}, TiedCase{.schedule = "interleaved", .stages = 2, .chunks = 3},
                              TiedCase{.schedule = "zb-v", .stages = 2}, TiedCase{.stages = 2, .replicas = 2},
                              TiedCase{.stages = 1, .replicas = 3}})
    expect_same(train_decaying(one, false), train_decaying(one, true), one.name());
}

TEST(Ties, are_saved_once) {
  const auto state = train({.stages = 4}).state;
  EXPECT_TRUE(state.contains("embedding.table"));
  EXPECT_TRUE(state.contains("first.weight"));
  EXPECT_FALSE(state.contains("last.weight"));
  EXPECT_TRUE(state.contains("last.bias"));
  EXPECT_EQ(state.size(), 1u + 2 + 2 + 10 + 1);
}

TEST(Ties, equal_the_plain_loop) {
  TiedNetwork network;
  std::vector<torch::Tensor> parameters;
  std::map<std::string, torch::Tensor> plain;
  for (const auto& [name, value] : network.named_parameters(3)) {
    parameters.push_back(value);
    plain[name] = value;
  }
  torch::optim::SGD optimizer(parameters, 0.1);
  const auto [tokens, targets] = batch();
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const torch::Tensor loss = torch::nn::functional::cross_entropy(network(Value(tokens)).tensor(), targets);
    loss.backward();
    optimizer.step();
  }
  const Trained pipelined = train({.schedule = "1f1b", .stages = 3});
  for (const auto& [name, value] : plain)
    EXPECT_LT((value - pipelined.state.at(name)).norm().item<double>(), 1e-5 * value.norm().item<double>()) << name;
}

TEST(Ties, sync_ties_distributes_the_value_of_the_owner_stage) {
  PipelineOf<TiedNetwork> pipeline({.stages = 4}, options_of({.stages = 4}));
  const auto [tokens, targets] = batch();
  {
    const torch::NoGradGuard no_grad;
    pipeline.local_state().at("embedding.table").mul_(2);
    pipeline.local_state().at("first.weight").add_(0.25);
  }
  const double unsynchronised = pipeline.evaluate(tokens, targets).loss();
  pipeline.sync_ties();
  const double synchronised = pipeline.evaluate(tokens, targets).loss();

  World alone({.stages = 1});
  TiedNetwork same;
  Pipeline one_stage(alone, same, cross_entropy, options_of({}));
  {
    const torch::NoGradGuard no_grad;
    one_stage.local_state().at("embedding.table").mul_(2);
    one_stage.local_state().at("first.weight").add_(0.25);
  }
  EXPECT_EQ(synchronised, one_stage.evaluate(tokens, targets).loss());
  EXPECT_NE(unsynchronised, synchronised);
}

struct BadTie : Cell {
  Layer in = add("in", [] { return torch::nn::Linear(3, 4); });
  Layer out = add("out", [] { return torch::nn::Linear(4, 3); });
  Value forward(Value x) override { return out(in(x)); }
};

std::string complaint_of(Cell& network) {
  World world({.stages = 2});
  return test::error_text<std::exception>(
      [&] { Pipeline pipeline(world, network, cross_entropy, {.partition = "out"}); });
}

TEST(Ties, of_two_shapes_or_unknown_names_are_an_error) {
  BadTie shapes;
  shapes.out.tie("weight", shapes.in, "weight");
  EXPECT_NE(complaint_of(shapes).find("[3, 4] cannot be tied to one of shape [4, 3]"), std::string::npos)
      << complaint_of(shapes);
  BadTie names;
  names.out.tie("wait", names.in, "weight");
  EXPECT_NE(complaint_of(names).find("'out' has no parameter 'wait' to tie; it has weight, bias"), std::string::npos)
      << complaint_of(names);
  BadTie itself;
  EXPECT_THROW(itself.in.tie("weight", itself.in, "weight"), ScheduleError);
}

}  // namespace
}  // namespace penstock::test::ties_test
