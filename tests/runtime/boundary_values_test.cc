// Boundary values: of any type, with gradients or without, or undefined; to the next stage and as skips, forward and
// backward, between stages of one rank and of several.
#include "tests/runtime/trained.h"

namespace penstock::test::boundary_values_test {
namespace {

struct Kinds : Cell {
  Layer names = add("names", [] { return torch::nn::Embedding(8, 8); });
  Layer first = add("first", [] { return torch::nn::Linear(8, 8); });
  Layer second = add("second", [] { return torch::nn::Linear(8, 8); });
  Layer third = add("third", [] { return torch::nn::Linear(8, 8); });
  Layer head = add("head", [] { return torch::nn::Linear(8, 4); });

  /// [n, 8] -> itself, int64, bool, float without gradient, double without gradient, nothing.
  static Tensors kinds_of(const Tensors& v) {
    const torch::Tensor& x = v[0];
    return {x, x.argmax(1), x.gt(0), x.detach().mean(1, true), x.detach().sum({1}, true, torch::kFloat64), {}};
  }

  Value forward(Value x) override {
    const Values kinds = apply("kinds", kinds_of, {first(x)}, 6);
    x = second(relu(kinds[0]));
    const Value masked = apply("mask", [](const Tensors& v) { return v[0] * v[1]; }, {x, kinds[2]});
    x = third(masked + names(kinds[1]));
    const Values late = apply(
        "late",
        [](const Tensors& v) {
          return Tensors{v[0] + v[1] + v[2].to(torch::kFloat32), v[3]};
        },
        {x, kinds[3], kinds[4], kinds[5]}, 2);
    return apply("nothing_left", [](const Tensors& v) { return v[1].defined() ? v[1] : v[0]; },
                 {head(late[0]), late[1]});
  }
};

torch::Tensor rows() {
  torch::manual_seed(1);
  return torch::randn({11, 8});
}

PipelineOptions options_of(const std::string& schedule, int chunks) {
  return {.micro_batches = 4, .schedule = schedule, .chunks = chunks, .partition = "uniform", .seed = 3};
}

TEST(BoundaryValues, of_all_kinds_are_sent_between_ranks_and_chunks) {
  const Trained one = train<Kinds>({.options = options_of("gpipe", 1)}, rows());
  EXPECT_LT(one.losses[2], one.losses[0]);
  const std::vector<std::pair<std::string, int>> schedules = {
      {"gpipe", 1}, {"1f1b", 1}, {"zb-h1", 1}, {"interleaved", 2}, {"zb-v", 2}, {"dualpipe-v", 2}, {"interleaved", 3}};
  for (const auto& [schedule, chunks] : schedules)
    for (int stages : {2, 3, 4})
      for (bool recompute : {false, true}) {
        PipelineOptions options = options_of(schedule, chunks);
        options.recompute = recompute;
        expect_same(one, train<Kinds>({.stages = stages, .options = options}, rows()),
                    say(schedule, " p ", stages, " v ", chunks, recompute ? " recompute" : ""));
      }
}

TEST(BoundaryValues, have_the_gradients_of_autograd) {
  Kinds network;
  const auto loss = [&] {
    return torch::nn::functional::cross_entropy(network(Value(rows())).tensor(), torch::arange(11) % 4);
  };
  const Trained plain = train_plainly(network, loss, {.seed = 3});
  expect_close(plain.state, train<Kinds>({.stages = 4, .options = options_of("1f1b", 1)}, rows()).state, 1e-4);
}

/// A value with a gradient that more than two stages read: the gradients are added in one order for every partition.
TEST(BoundaryValues, to_many_stages_add_their_gradients_in_one_order) {
  struct Fan : Cell {
    Layer in = add("in", [] { return torch::nn::Linear(8, 8); });
    std::vector<Layer> readers;
    Layer head = add("head", [] { return torch::nn::Linear(8, 4); });
    Fan() {
      for (int i = 0; i < 6; ++i)
        readers.push_back(add("reader" + std::to_string(i), [] { return torch::nn::Linear(8, 8); }));
    }
    Value forward(Value x) override {
      x = in(x);
      Value y = tanh(x);
      for (const Layer& reader : readers) {
        y = reader(y);
        y = y * tanh(x);
      }
      return head(y);
    }
  };
  const Trained one = train<Fan>({.options = options_of("gpipe", 1)}, rows());
  PipelineOptions options = options_of("gpipe", 1);
  options.partition = "reader3,reader4,reader5";
  for (bool recompute : {false, true}) {
    options.recompute = recompute;
    expect_same(one, train<Fan>({.stages = 4, .options = options}, rows()), recompute ? "recompute" : "kept");
  }
}

}  // namespace
}  // namespace penstock::test::boundary_values_test
