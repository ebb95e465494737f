// Random numbers that LibTorch draws in a pipeline: repeatable, the same for every partition, schedule and number of
// threads, the same when a call is recomputed, and without an effect on the process's default generator.
#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/autograd.h>

#include "penstock/model/dropout.h"
#include "penstock/model/random_place.h"
#include "tests/base/error_text.h"
#include "tests/runtime/trained.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::randomness_test {
namespace {

/// [n, 16] as a sequence of two, in the (sequence, batch, feature) order of torch's attention, and back.
torch::Tensor as_sequence(const torch::Tensor& x) { return x.view({x.size(0), 2, 8}).transpose(0, 1); }
torch::Tensor as_rows(const torch::Tensor& x) { return x.transpose(0, 1).reshape({x.size(1), 16}); }

struct AttentionImpl : torch::nn::Module {
  torch::nn::MultiheadAttention inner =
      register_module("inner", torch::nn::MultiheadAttention(torch::nn::MultiheadAttentionOptions(8, 2).dropout(0.4)));
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor s = as_sequence(x);
    return as_rows(std::get<0>(inner->forward(s, s, s)));
  }
};
struct EncoderImpl : torch::nn::Module {
  torch::nn::TransformerEncoderLayer inner =
      register_module("inner", torch::nn::TransformerEncoderLayer(
                                   torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(8).dropout(0.4)));
  torch::Tensor forward(const torch::Tensor& x) { return as_rows(inner->forward(as_sequence(x))); }
};
template <class Recurrent, class Options>
struct RecurrentImpl : torch::nn::Module {
  Recurrent inner = register_module("inner", Recurrent(Options(8, 8).num_layers(2).dropout(0.4)));
  torch::Tensor forward(const torch::Tensor& x) { return as_rows(std::get<0>(inner->forward(as_sequence(x)))); }
};
using LstmImpl = RecurrentImpl<torch::nn::LSTM, torch::nn::LSTMOptions>;
using GruImpl = RecurrentImpl<torch::nn::GRU, torch::nn::GRUOptions>;

struct DrawingImpl : torch::nn::Module {
  torch::Tensor (*draw)(const torch::Tensor&);
  explicit DrawingImpl(torch::Tensor (*function)(const torch::Tensor&)) : draw(function) {}
  torch::Tensor forward(const torch::Tensor& x) { return draw(x); }
};

LayerFactory drawing(torch::Tensor (*function)(const torch::Tensor&)) {
  return layer_factory([function] { return std::make_shared<DrawingImpl>(function); });
}

struct Kind {
  std::string name;
  LayerFactory make;
};

const std::vector<Kind>& kinds() {
  using namespace torch::nn;
  using T = const torch::Tensor&;
  static const std::vector<Kind> all = {
      {"Dropout", layer_factory([] { return torch::nn::Dropout(0.5); })},
      {"Dropout in place",
       layer_factory([] { return torch::nn::Dropout(torch::nn::DropoutOptions(0.5).inplace(true)); })},
      {"AlphaDropout", layer_factory([] { return AlphaDropout(0.5); })},
      {"FeatureAlphaDropout", layer_factory([] { return FeatureAlphaDropout(0.5); })},
      {"RReLU", layer_factory([] { return RReLU(); })},
      {"LSTM", layer_factory([] { return std::make_shared<LstmImpl>(); })},
      {"GRU", layer_factory([] { return std::make_shared<GruImpl>(); })},
      {"MultiheadAttention", layer_factory([] { return std::make_shared<AttentionImpl>(); })},
      {"TransformerEncoderLayer", layer_factory([] { return std::make_shared<EncoderImpl>(); })},
      {"randn_like", drawing([](T x) { return x * torch::randn_like(x); })},
      {"randn", drawing([](T x) { return x * torch::randn(x.sizes()); })},
      {"rand", drawing([](T x) { return x + torch::rand({16}); })},
      {"randint", drawing([](T x) { return x * torch::randint(3, {16}); })},
      {"randperm", drawing([](T x) { return x.index_select(1, torch::randperm(16)); })},
      {"multinomial", drawing([](T x) { return x.index_select(1, torch::multinomial(torch::ones({16}), 16, true)); })},
      {"bernoulli", drawing([](T x) { return x * torch::bernoulli(torch::sigmoid(x.detach())); })},
      {"normal", drawing([](T x) { return x + at::normal(x.detach(), 0.5); })},
      {"poisson", drawing([](T x) { return x * torch::poisson(x.detach().abs()); })},
      {"several at once",
       drawing([](T x) { return torch::dropout(x, 0.3, true) + torch::dropout(x, 0.3, true) * torch::rand_like(x); })}};
  return all;
}

struct Network : Cell {
  Layer in = add("in", [] { return torch::nn::Linear(8, 16); });
  Layer middle, random, again;
  Layer out = add("out", [] { return torch::nn::Linear(16, 4); });
  explicit Network(const Kind& kind)
      : middle(add("middle", [] { return torch::nn::Linear(16, 16); })),
        random(add_factory("random", kind.make)),
        again(add_factory("again", kind.make)) {}
  Value forward(Value x) override {
    x = again(middle(random(in(x))));
    return out(apply(
        "noise", [](const Tensors& v) { return v[0] + 0.1 * torch::randn_like(v[0]); }, Values{x}));
  }
};

struct How {
  int stages = 1;
  std::string schedule = "gpipe";
  bool recompute = false;
  std::uint64_t seed = 9;
  int replicas = 1;
  int micro_batches = 3;
};

Trained train_network(Cell& network, const How& how) {
  torch::Generator own = at::detail::createCPUGenerator(4);
  const torch::Tensor inputs = torch::empty({12, 8}).normal_(0, 1, own), targets = torch::arange(12) % 4;
  World world({.stages = how.stages, .replicas = how.replicas});
  Pipeline pipeline(world, network, cross_entropy,
                    {.micro_batches = how.micro_batches,
                     .schedule = how.schedule,
                     .recompute = how.recompute,
                     .partition = "uniform",
                     .seed = how.seed});
  pipeline.optimize_with(torch_sgd(0.1));
  Trained trained = train(pipeline, inputs, targets, 2);
  trained.losses.push_back(pipeline.evaluate(inputs, targets).loss());  // "noise" draws here too
  return trained;
}

Trained train_kind(const Kind& kind, const How& how) {
  Network network(kind);
  return train_network(network, how);
}

// Regression: a mask that was drawn again for the backward pass made gradients wrong without an error.
TEST(Randomness, of_torch_is_the_same_for_every_schedule_and_partition_and_in_recompute) {
  for (const Kind& kind : kinds()) {
    const Trained plain = train_kind(kind, {});
    expect_same(plain, train_kind(kind, {}), kind.name + ", run to run");
    EXPECT_NE(plain.losses, train_kind(kind, {.seed = 10}).losses) << kind.name;
    for (const bool recompute : {false, true})
      for (const int stages : {1, 2, 3})
        for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
          if (std::string(schedule) == "1f1b" && stages == 2) continue;
          expect_same(plain, train_kind(kind, {.stages = stages, .schedule = schedule, .recompute = recompute}),
                      say(kind.name, ", ", schedule, ", p ", stages, recompute ? ", recomputed" : ""));
        }
  }
}

TEST(Randomness, of_torch_with_replicas_is_repeatable) {
  const Kind& kind = kinds().front();
  const Trained plain = train_kind(kind, {.replicas = 2});
  expect_same(plain, train_kind(kind, {.replicas = 2}), "run to run");
  expect_same(plain, train_kind(kind, {.stages = 2, .schedule = "1f1b", .recompute = true, .replicas = 2}), "p 2");
}

TEST(Randomness, does_not_change_the_default_generator) {
  for (const Kind& kind : kinds()) {
    torch::manual_seed(3);
    const torch::Tensor before = at::detail::getDefaultCPUGenerator().get_state();
    train_kind(kind, {.stages = 2, .recompute = true});
    EXPECT_TRUE(torch::equal(before, at::detail::getDefaultCPUGenerator().get_state())) << kind.name;
  }
}

/// The default generator's state, and numbers drawn from it meanwhile, change nothing.
TEST(Randomness, does_not_depend_on_the_default_generator) {
  const Kind& kind = kinds().front();
  torch::manual_seed(1);
  const Trained plain = train_kind(kind, {});
  torch::manual_seed(2);
  expect_same(plain, train_kind(kind, {}), "another seed");
}

/// A generator that the caller passes is used; outside of a pipeline nothing changes.
TEST(Randomness, of_a_callers_own_generator_and_outside_a_pipeline_is_unchanged) {
  torch::manual_seed(5);
  const torch::Tensor outside = torch::rand({8});
  torch::Generator own = at::detail::createCPUGenerator(5);
  EXPECT_TRUE(torch::equal(outside, torch::rand({8}, own)));

  struct Own : Cell {
    Layer linear = add("linear", [] { return torch::nn::Linear(8, 4); });
    torch::Tensor drawn;
    Value forward(Value x) override {
      return linear(apply(
          "own",
          [this](const Tensors& v) {
            torch::Generator mine = at::detail::createCPUGenerator(5);
            drawn = torch::rand({8}, mine);
            return v[0] + drawn;
          },
          Values{x}));
    }
  } network;
  train_network(network, {});
  EXPECT_TRUE(torch::equal(outside, network.drawn));
}

/// Its backward function draws random numbers.
struct NoisyGradient : torch::autograd::Function<NoisyGradient> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x) { return x * 2; }
  static Tensors backward(torch::autograd::AutogradContext*, const Tensors& gradients) {
    return {gradients[0] + 0.1 * torch::randn_like(gradients[0])};
  }
};

TEST(Randomness, of_backward_functions_is_repeatable) {
  const Kind kind{"noisy", drawing([](const torch::Tensor& x) { return NoisyGradient::apply(x); })};
  torch::manual_seed(3);
  const torch::Tensor before = at::detail::getDefaultCPUGenerator().get_state();
  const Trained plain = train_kind(kind, {.stages = 2});
  EXPECT_TRUE(torch::equal(before, at::detail::getDefaultCPUGenerator().get_state()));
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
    expect_same(plain, train_kind(kind, {.stages = 2, .schedule = schedule}), schedule);
}

/// The noise of a variational auto-encoder.
struct Vae : Cell {
  Layer mean = add("mean", [] { return torch::nn::Linear(8, 6); });
  Layer spread = add("spread", [] { return torch::nn::Linear(8, 6); });
  Layer out = add("out", [] { return torch::nn::Linear(6, 4); });
  Value forward(Value x) override {
    const Value middle = mean(x);
    const Value z = middle + normal_like(middle) * sigmoid(spread(x));
    return out(z + uniform_like(z) * normal_like(z));
  }
};

TEST(Randomness, of_normal_like_and_uniform_like_depends_on_the_sample) {
  const auto run = [](const How& how) {
    Vae network;
    return train_network(network, how);
  };
  const Trained plain = run({});
  EXPECT_NE(plain.losses, run({.seed = 10}).losses);
  for (const int stages : {1, 2, 3})
    for (const bool recompute : {false, true})
      expect_same(plain, run({.stages = stages, .schedule = "1f1b", .recompute = recompute}), say("p ", stages));
  for (const int micro_batches : {1, 4}) expect_close(plain, run({.micro_batches = micro_batches}), 1e-5);
  expect_close(plain, run({.replicas = 2}), 1e-5);
}

/// [n, t, c] transposed, flattened, or without a sample dimension.
struct Turned : Cell {
  enum Way { right, turned, named, flattened, told, broadcast } way;
  Layer in = add("in", [] { return torch::nn::Linear(8, 16); });
  Layer drop;
  Layer out = add("out", [] { return torch::nn::Linear(16, 4); });
  explicit Turned(Way w)
      : way(w), drop(add("drop", [w] {
          return Dropout(DropoutOptions{0.5, w == named ? 1 : 0, w == told});
        })) {}
  Value forward(Value x) override {
    x = reshape(in(x), {2, 8});
    switch (way) {
      case right: x = drop(x); break;
      case turned:
      case named: x = transpose(drop(transpose(x, 0, 1)), 0, 1); break;
      case flattened:
      case told: {
        const Value rows = apply(
            "rows",
            [](const Tensors& v) {
              return v[0].reshape({-1, 8});
            },
            Values{x});
        x = apply(
            "back",
            [](const Tensors& v) {
              return v[0].view({-1, 2, 8});
            },
            Values{drop(rows)});
        break;
      }
      case broadcast:
        x = x * drop(apply(
                    "table",
                    [](const Tensors&) {
                      return torch::ones({1, 2, 8});
                    },
                    Values{x}));
    }
    return out(flatten(x));
  }
};

TEST(Randomness, of_dropout_depends_on_the_sample_dimension) {
  const auto run = [](Turned::Way way, int micro_batches) {
    Turned network(way);
    return train_network(network, {.micro_batches = micro_batches});
  };
  const Trained right = run(Turned::right, 3);
  expect_same(right, run(Turned::named, 3), "named");
  expect_same(right, run(Turned::told, 3), "flattened");
  for (const Turned::Way way : {Turned::right, Turned::named, Turned::told}) expect_close(right, run(way, 1), 1e-5);
  for (const Turned::Way way : {Turned::turned, Turned::flattened, Turned::broadcast}) try {
      run(way, 3);
      ADD_FAILURE() << "no error for way " << way;
    } catch (const RankFailure& error) {
      const std::string text = error.what();
      EXPECT_TRUE(test::says(text, "'drop'", "sample_dimension", "4 samples")) << text;
    }
}

/// Two dropouts in one module must not drop the same elements.
TEST(Randomness, of_two_dropouts_in_one_module_differs) {
  RandomPlace place{1, 2, 0, "both"};
  const RandomPlaceGuard guard(place);
  Dropout a(0.5), b(0.5);
  const torch::Tensor x = torch::ones({4, 100});
  place.begin_call("both");
  const torch::Tensor first = a(x), second = b(x);
  EXPECT_FALSE(torch::equal(first, second));
  place.begin_call("both");
  EXPECT_TRUE(torch::equal(first, a(x)));
  EXPECT_TRUE(torch::equal(second, b(x)));
}

}  // namespace
}  // namespace penstock::test::randomness_test
