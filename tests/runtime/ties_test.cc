// Parameters that several stages use: one value and one gradient for every partition, schedule and optimiser.
#include <gtest/gtest.h>

#include "tests/base/error_text.h"
#include "tests/runtime/trained.h"
#include "tests/support/pipeline_of.h"

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
    x = tanh(twice(x));
    for (const Layer& layer : hidden) x = x + tanh(layer(x));
    x = x + matmul(softmax(matmul(x, embedded[1], {.transpose_b = true}), -1), embedded[1]);
    x = last(twice(x));
    return matmul(x, embedded[1], {.transpose_b = true});
  }
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

Trained train_with(const TiedCase& one, const OptimizerFactory& optimizer) {
  PipelineOf<TiedNetwork> pipeline({.stages = one.stages, .replicas = one.replicas}, options_of(one), optimizer);
  const auto [tokens, targets] = batch();
  return train(pipeline, tokens, targets);
}

Trained train_tied(const TiedCase& one) { return train_with(one, optimizer_of(one.optimizer)); }

TEST(Ties, train_bitwise_the_same_for_every_partition_and_schedule) {
  for (const char* optimizer : {"sgd", "momentum", "adam"}) {
    const Trained alone = train_tied({.optimizer = optimizer});
    for (int stages : {2, 3, 4})
      for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
        const TiedCase one{.schedule = schedule, .stages = stages, .optimizer = optimizer};
        expect_same(alone, train_tied(one), one.name());
      }
    const TiedCase chunked{.schedule = "interleaved", .stages = 2, .chunks = 3, .optimizer = optimizer};
    expect_same(alone, train_tied(chunked), chunked.name());
    const TiedCase v_shaped{.schedule = "zb-v", .stages = 3, .optimizer = optimizer};
    expect_same(alone, train_tied(v_shaped), v_shaped.name());
  }
}

TEST(Ties, count_once_in_the_norm_and_are_clipped) {
  const Trained free = train_tied({});
  const Trained alone = train_tied({.clip_norm = 0.05});
  EXPECT_NE(free.losses, alone.losses);
  expect_same(alone, train_tied({.schedule = "zb-h2", .stages = 3, .clip_norm = 0.05}), "zb-h2 p 3");
  expect_same(alone, train_tied({.schedule = "looped-bfs", .stages = 2, .chunks = 2, .clip_norm = 0.05}),
              "looped-bfs p 2");
}

TEST(Ties, fused_weight_gradients_are_the_same_for_every_partition) {
  const TiedCase alone{.weight_gradients = WeightGradients::fused};
  const TiedCase partition{.schedule = "zb-h1", .stages = 3, .weight_gradients = WeightGradients::fused};
  expect_same(train_tied(alone), train_tied(partition), "fused");
}

TEST(Ties, are_summed_over_replicas) {
  const Trained alone = train_tied({.replicas = 2, .micro_batches = 2});
  expect_same(alone, train_tied({.stages = 3, .replicas = 2, .micro_batches = 2}), "p 3 d 2");
  expect_close(train_tied({.micro_batches = 4}), alone);
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
  return train_with(one, [in_place](const std::vector<NamedParameter>& parameters) {
    return std::make_unique<Decaying>(parameters, in_place);
  });
}

TEST(Ties, and_replicas_allow_optimisers_that_change_gradients_in_place) {
  for (const TiedCase& one : {TiedCase{.stages = 3}, TiedCase{.schedule = "interleaved", .stages = 2, .chunks = 3},
                              TiedCase{.schedule = "zb-v", .stages = 2}, TiedCase{.stages = 2, .replicas = 2},
                              TiedCase{.stages = 1, .replicas = 3}})
    expect_same(train_decaying(one, false), train_decaying(one, true), one.name());
}

/// A table whose gradient travels in five pieces (rank/gradient_reducer.cc).
struct LargeTable : Cell {
  static constexpr std::int64_t rows = 1100, width = 2048;
  Layer embedding = add("embedding", [] { return torch::nn::Embedding(rows, width); });
  std::vector<Layer> norms;
  Layer head = add("head", [] { return torch::nn::Linear(torch::nn::LinearOptions(width, rows).bias(false)); });

  LargeTable() {
    for (int i = 0; i < 4; ++i)
      norms.push_back(add(say("norm", i), [] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})); }));
    head.tie("weight", embedding, "weight");
  }
  Value forward(Value x) override {
    x = embedding(x);
    for (const Layer& norm : norms) x = tanh(norm(x));
    return head(x);
  }
};

TEST(Ties, of_several_pieces_are_bitwise_the_same) {
  const auto train_large = [](const TiedCase& one) {
    PipelineOf<LargeTable> pipeline({.stages = one.stages, .replicas = one.replicas}, options_of(one), adam());
    const torch::Tensor tokens = torch::arange(12) * 227 % LargeTable::rows;
    return train(pipeline, tokens, (tokens + 1) % LargeTable::rows);
  };
  const Trained alone = train_large({.clip_norm = 0.1});
  for (const TiedCase& one : {TiedCase{.stages = 2, .clip_norm = 0.1}, TiedCase{.stages = 4, .clip_norm = 0.1},
                              TiedCase{.schedule = "zb-v", .stages = 2, .clip_norm = 0.1}})
    expect_same(alone, train_large(one), one.name());
  expect_same(train_large({.replicas = 2, .micro_batches = 2}),
              train_large({.stages = 3, .replicas = 2, .micro_batches = 2}), "p 3 d 2");
}

TEST(Ties, are_saved_once) {
  const auto state = train_tied({.stages = 4}).state;
  EXPECT_TRUE(state.contains("embedding.table"));
  EXPECT_TRUE(state.contains("first.weight"));
  EXPECT_FALSE(state.contains("last.weight"));
  EXPECT_TRUE(state.contains("last.bias"));
  EXPECT_EQ(state.size(), 1u + 2 + 2 + 10 + 1);
}

TEST(Ties, equal_the_plain_loop) {
  TiedNetwork network;
  const auto [tokens, targets] = batch();
  const auto loss = [&, inputs = tokens, wanted = targets] {
    return torch::nn::functional::cross_entropy(network(Value(inputs)).tensor(), wanted);
  };
  expect_close(train_plainly(network, loss, {.seed = 3}), train_tied({.stages = 3}));
}

TEST(Ties, sync_ties_distributes_the_value_of_the_owner_stage) {
  const auto [tokens, targets] = batch();
  std::vector<double> losses;  // of four stages before and after the call, and of one
  for (const int stages : {4, 1}) {
    PipelineOf<TiedNetwork> pipeline({.stages = stages}, options_of({}));
    {
      const torch::NoGradGuard no_grad;
      pipeline.local_state_dict()["embedding.table"].mul_(2);
      pipeline.local_state_dict()["first.weight"].add_(0.25);
    }
    losses.push_back(pipeline.evaluate(tokens, targets).loss());
    if (stages == 1) continue;
    pipeline.sync_ties();
    losses.push_back(pipeline.evaluate(tokens, targets).loss());
  }
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_EQ(losses[1], losses[2]);
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
  EXPECT_TRUE(says(complaint_of(shapes), "[3, 4] cannot be tied to one of shape [4, 3]")) << complaint_of(shapes);
  BadTie names;
  names.out.tie("wait", names.in, "weight");
  EXPECT_TRUE(says(complaint_of(names), "'out' has no parameter 'wait' to tie; it has weight, bias"))
      << complaint_of(names);
  BadTie itself;
  EXPECT_THROW(itself.in.tie("weight", itself.in, "weight"), ScheduleError);
}

}  // namespace
}  // namespace penstock::test::ties_test
