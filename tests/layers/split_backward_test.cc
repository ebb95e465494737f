// The split backward pass: I and W are bitwise equal to B for layers of all kinds, and W's fused over a step give one
// result for all schedules and partitions.
#include <gtest/gtest.h>

#include "penstock/layers/split_layers.h"
#include "penstock/model/dropout.h"
#include "penstock/pipeline/profiler.h"
#include "tests/runtime/trained.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::split_backward_test {
namespace {

/// Attention with two heads as one opaque module, whose products are not layers.
struct AttentionImpl : torch::nn::Module {
  torch::nn::Linear qkv{register_module("qkv", torch::nn::Linear(8, 24))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(8, 8))};
  torch::Tensor forward(const torch::Tensor& x) {
    const auto parts = qkv(x).view({x.size(0), x.size(1), 3, 2, 4}).permute({2, 0, 3, 1, 4}).unbind(0);
    const torch::Tensor seen = torch::softmax(parts[0].matmul(parts[1].transpose(-2, -1)) / 2, -1).matmul(parts[2]);
    return x + out(seen.transpose(1, 2).reshape(x.sizes()));
  }
};
TORCH_MODULE(Attention);

/// A module that uses one matrix twice in its forward.
struct TwiceImpl : torch::nn::Module {
  torch::Tensor weight = register_parameter("weight", torch::randn({8, 8}) / 3);
  torch::Tensor forward(const torch::Tensor& x) { return torch::tanh(x.matmul(weight)).matmul(weight.t()); }
};
TORCH_MODULE(Twice);

/// Layers of all kinds: images through convolutions, then as sequences of five rows of eight numbers.
struct Mixed : Cell {
  Layer conv = add("conv", [] { return torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 8, 3).padding(1).stride(2)); });
  Layer batch_norm = add("batch_norm", [] { return torch::nn::BatchNorm2d(8); });
  Layer grouped = add("grouped", [] {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, {3, 1}).groups(4).bias(false).padding({1, 0}));
  });
  Layer line = add("line", [] { return torch::nn::Conv1d(torch::nn::Conv1dOptions(8, 5, 2).dilation(2)); });
  Layer to_words = add("to_words", [] { return torch::nn::Linear(7, 8); });
  Layer attention = add("attention", [] { return Attention(); });
  Layer norm = add("norm", [] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})); });
  Layer gru = add("gru", [] { return torch::nn::GRU(torch::nn::GRUOptions(8, 8).batch_first(true)); });
  Layer twice = add("twice", [] { return Twice(); });
  Layer again = add("again", [] { return torch::nn::Linear(8, 8); });
  Layer transposed = add("transposed", [] {
    auto layer = std::make_shared<layers::TransposedLinear>(8, 8);
    torch::nn::init::uniform_(layer->weight, -1, 1);
    return layer;
  });
  Layer head = add("head", [] { return torch::nn::Linear(40, 4); });

  Value forward(Value x) override {  // x: [n, 2, 6, 6]
    x = flatten(grouped(relu(batch_norm(conv(x)))), 2);
    x = attention(to_words(line(x)));
    x = gru.call({norm(x)}).front();
    x = transposed(again(relu(again(twice(x)))));
    return head(flatten(x, 1));
  }
};

/// Token ids through an embedding, which has no input gradient.
struct Embedded : Cell {
  Layer embedding =
      add("embedding", [] { return torch::nn::Embedding(torch::nn::EmbeddingOptions(11, 8).padding_idx(0)); });
  Layer dropout = add("dropout", [] { return Dropout(0.3); });
  Layer mix = add("mix", [] { return torch::nn::Linear(8, 8); });
  Layer head = add("head", [] { return torch::nn::Linear(24, 4); });
  Value forward(Value x) override { return head(flatten(relu(mix(dropout(embedding(x)))), 1)); }
};

/// A class derived from Linear that computes something else.
struct ScaledLinearImpl : torch::nn::LinearImpl {
  using LinearImpl::LinearImpl;
  torch::Tensor forward(const torch::Tensor& x) { return 2 * torch::nn::LinearImpl::forward(x); }
};
TORCH_MODULE(ScaledLinear);

struct Odd : Cell {
  Layer scaled = add("scaled", [] { return ScaledLinear(8, 8); });
  Layer frozen_bias = add("frozen_bias", [] {
    torch::nn::Linear linear(8, 8);
    linear->bias.set_requires_grad(false);
    return linear;
  });
  Layer volume = add("volume", [] {
    return torch::nn::Conv3d(torch::nn::Conv3dOptions(2, 3, 2).stride({1, 2, 1}).padding(1).dilation({1, 1, 2}));
  });
  Layer head = add("head", [] { return torch::nn::Linear(18, 4); });
  Value forward(Value x) override {  // x: [n, 8]
    x = frozen_bias(relu(scaled(x)));
    x = apply("as_volume", [](const Tensors& v) { return v[0].view({-1, 2, 2, 2, 1}).expand({-1, 2, 2, 2, 1}); }, {x});
    return head(flatten(volume(x), 1));
  }
};

torch::Tensor images() {
  torch::manual_seed(1);
  return torch::randn({11, 2, 6, 6});
}
torch::Tensor word_numbers() {
  torch::manual_seed(2);
  return torch::randint(0, 11, {11, 3}, torch::kInt64);
}

PipelineOptions options_of(const std::string& schedule, int micro_batches) {
  return {.micro_batches = micro_batches, .schedule = schedule, .seed = 9};
}

template <class Network>
void expect_split_equals_whole(const torch::Tensor& inputs, int most_stages) {
  for (int stages = 1; stages <= most_stages; ++stages)
    for (int m : {1, 4}) {
      const Trained whole = train<Network>({.stages = stages, .options = options_of("1f1b", m)}, inputs);
      for (int lag : {0, 1, m}) {
        PipelineOptions options = options_of("", m);
        options.custom = split_1f1b({.ranks = stages, .micro_batches = m}, lag);
        expect_same(whole, train<Network>({.stages = stages, .options = options}, inputs),
                    say("p ", stages, " m ", m, " lag ", lag));
      }
    }
}

TEST(SplitBackward, equals_the_whole_for_layers_of_all_kinds) { expect_split_equals_whole<Mixed>(images(), 3); }

TEST(SplitBackward, equals_the_whole_for_embeddings_and_dropout) {
  expect_split_equals_whole<Embedded>(word_numbers(), 3);
}

/// Three steps of the standalone network, one micro-batch after the other.
template <class Network>
Trained train_plainly(const torch::Tensor& inputs, int micro_batches) {
  Network network;
  const torch::Tensor targets = torch::arange(inputs.size(0)) % 4;
  const auto loss = [&] {
    torch::Tensor sum = torch::zeros({});
    for (int i = 0; i < micro_batches; ++i) {
      const RowRange rows = split(inputs.size(0), {.index = i, .of = micro_batches});
      sum = sum + torch::nn::functional::cross_entropy(
                      network(Value(inputs.narrow(0, rows.begin, rows.size()))).tensor(),
                      targets.narrow(0, rows.begin, rows.size()),
                      torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
    }
    return sum / inputs.size(0);
  };
  return test::train_plainly(network, loss, {.seed = 9});
}

template <class Network>
void expect_autograds_gradients(const torch::Tensor& inputs) {
  for (int m : {1, 4}) {
    const Trained plain = train_plainly<Network>(inputs, m);
    for (const WeightGradients mode : {WeightGradients::stream, WeightGradients::fused}) {
      PipelineOptions options = options_of("1f1b", m);
      options.weight_gradients = mode;
      const Trained piped = train<Network>({.stages = 2, .options = options}, inputs);
      expect_close(plain.state, piped.state, 1e-4);
    }
  }
}

TEST(SplitBackward, has_the_gradients_of_autograd) {
  expect_autograds_gradients<Mixed>(images());
  torch::manual_seed(4);
  expect_autograds_gradients<Odd>(torch::randn({11, 8}));
  struct SureInstructions : Embedded {
    Value forward(Value x) override { return head(flatten(relu(mix(embedding(x))), 1)); }
  };
  expect_autograds_gradients<SureInstructions>(word_numbers());
}

TEST(SplitBackward, equals_the_whole_for_unusual_layers) {
  torch::manual_seed(4);
  expect_split_equals_whole<Odd>(torch::randn({11, 8}), 2);
}

TEST(SplitBackward, fused_is_the_same_for_all_schedules_and_partitions) {
  for (int m : {1, 3, 4}) {
    PipelineOptions options = options_of("gpipe", m);
    options.weight_gradients = WeightGradients::fused;
    const Trained one = train<Mixed>({.stages = 1, .options = options}, images());
    for (const char* schedule : {"gpipe", "1f1b", "sequential"})
      for (int stages : {1, 2, 3}) {
        options.schedule = schedule;
        expect_same(one, train<Mixed>({.stages = stages, .options = options}, images()),
                    say(schedule, " p ", stages, " m ", m));
      }
  }
}

TEST(SplitBackward, fused_equals_stream_up_to_rounding) {
  const Trained stream = train<Mixed>({.stages = 2, .options = options_of("1f1b", 4)}, images());
  PipelineOptions options = options_of("1f1b", 4);
  options.weight_gradients = WeightGradients::fused;
  const Trained fused = train<Mixed>({.stages = 2, .options = options}, images());
  expect_close(stream.state, fused.state, 1e-4);
}

TEST(SplitBackward, fused_under_a_memory_limit_keeps_the_limit) {
  PipelineOptions options = options_of("1f1b", 6);
  options.weight_gradients = WeightGradients::fused;
  options.memory_limit = TimesOf1F1B{1.5};
  PipelineOf<Mixed> pipeline({.stages = 2}, options, torch_sgd(0.1));
  pipeline.train_step(images(), torch::arange(11) % 4).wait();
  for (const RankPeak& peak : Profiler(pipeline).local_peaks()) {
    EXPECT_EQ(peak.measured, peak.predicted);
    EXPECT_LE(peak.measured, 3);
  }
}

/// Frozen weights, and a layer that no gradient reaches.
TEST(SplitBackward, works_with_frozen_weights) {
  struct PartlyFrozen : Cell {
    Layer a = add("a", [] {
      torch::nn::Linear frozen(8, 8);
      frozen->weight.set_requires_grad(false);
      return frozen;
    });
    Layer b = add("b", [] {
      torch::nn::Linear frozen(8, 8);
      for (torch::Tensor& parameter : frozen->parameters()) parameter.set_requires_grad(false);
      return frozen;
    });
    Layer unused = add("unused", [] { return torch::nn::Linear(8, 8); });
    Layer head = add("head", [] { return torch::nn::Linear(8, 4); });
    Value forward(Value x) override {
      x = b(relu(a(x)));
      return head(x) + apply("drop", [](const Tensors& v) { return v[0].detach(); }, {head(unused(x))});
    }
  };
  torch::manual_seed(4);
  const torch::Tensor inputs = torch::randn({8, 8});
  const Trained whole = train<PartlyFrozen>({.stages = 1, .options = options_of("1f1b", 4)}, inputs);
  PipelineOptions options = options_of("", 4);
  options.custom = split_1f1b({.ranks = 1, .micro_batches = 4}, 2);
  expect_same(whole, train<PartlyFrozen>({.stages = 1, .options = options}, inputs), "partly frozen");
}

}  // namespace
}  // namespace penstock::test::split_backward_test
