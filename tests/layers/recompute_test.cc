// Recompute: the same bits as without it for layers of all kinds, with fewer live activations.
#include <gtest/gtest.h>

#include <atomic>

#include "penstock/layers/recompute.h"
#include "penstock/model/dropout.h"
#include "tests/base/error_text.h"
#include "tests/runtime/trained.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::recompute_test {
namespace {

/// Reads its buffer in training and changes it: the second run must read the value that the first one read.
struct DriftingImpl : torch::nn::Module {
  torch::Tensor centre = register_buffer("centre", torch::zeros({8}));
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = x * (1 + centre.clone());
    if (is_training()) {
      const torch::NoGradGuard no_grad;
      centre.mul_(0.5).add_(x.mean(0), 0.5);
    }
    return y;
  }
};
TORCH_MODULE(Drifting);

/// Images through convolutions and batch normalisation, then rows of eight numbers through layers of many kinds.
struct Everything : Cell {
  Layer conv = add("conv", [] { return torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 8, 3).padding(1)); });
  Layer batch_norm = add("batch_norm", [] { return torch::nn::BatchNorm2d(8); });
  Layer in_place = add("in_place", [] { return torch::nn::ReLU(torch::nn::ReLUOptions(true)); });
  Layer drop = add("drop", [] { return Dropout(0.3); });
  Layer frozen = add("frozen", [] {
    torch::nn::Linear linear(72, 8);
    for (torch::Tensor& parameter : linear->parameters()) parameter.set_requires_grad(false);
    return linear;
  });
  Layer drifting = add("drifting", [] { return Drifting(); });
  Layer shared = add("shared", [] { return torch::nn::Linear(8, 8); });
  Layer gru = add("gru", [] { return torch::nn::GRU(torch::nn::GRUOptions(8, 8).batch_first(true)); });
  Layer names = add("names", [] { return torch::nn::Embedding(8, 8); });
  Layer norm = add("norm", [] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})); });
  Parameter offset = add_parameter("offset", [] { return torch::randn({8}); });
  Layer head = add("head", [] { return torch::nn::Linear(8, 4); });

  Value forward(Value x) override {  // [n, 2, 3, 3]
    x = frozen(flatten(in_place(drop(batch_norm(conv(x)))), 1));
    const Value early = x;
    x = drifting(x);
    const Values rows = apply(
        "rows",
        [](const Tensors& v) {
          return Tensors{v[0].unsqueeze(1), v[0].argmax(1), {}};
        },
        {shared(x)}, 3);
    x = squeeze(gru.call({rows[0]}).front(), 1) + names(rows[1]);
    x = apply("with_nothing", [](const Tensors& v) { return v[1].defined() ? v[0] * v[1] : v[0]; }, {x, rows[2]});
    return head(norm(shared(relu(x))) + early + offset.value());
  }
};

torch::Tensor images() {
  torch::manual_seed(1);
  return torch::randn({11, 2, 3, 3});
}

PipelineOptions options_of(const std::string& schedule, int micro_batches) {
  return {.micro_batches = micro_batches, .schedule = schedule, .partition = "uniform", .seed = 9};
}

TEST(Recompute, gives_the_same_bits_for_layers_of_all_kinds) {
  for (const WeightGradients mode : {WeightGradients::stream, WeightGradients::fused})
    for (int m : {1, 4}) {
      PipelineOptions options = options_of("gpipe", m);
      options.weight_gradients = mode;
      const Trained kept = train<Everything>({.options = options}, images());
      options.recompute = true;
      for (const char* schedule : {"gpipe", "1f1b", "zb-h1"})
        for (int stages : {1, 2}) {
          if (stages == 2 && std::string(schedule) != "gpipe") options.partition = "parameters";
          options.schedule = schedule;
          expect_same(kept, train<Everything>({.stages = stages, .options = options}, images()),
                      say(schedule, " p ", stages, " m ", m));
        }
    }
}

TEST(Recompute, split_backward_equals_the_whole) {
  const Trained kept = train<Everything>({.options = options_of("1f1b", 4)}, images());
  for (int lag : {0, 1, 4}) {
    PipelineOptions options = options_of("", 4);
    options.recompute = true;
    options.custom = split_1f1b({.ranks = 1, .micro_batches = 4}, lag);
    expect_same(kept, train<Everything>({.options = options}, images()), say("lag ", lag));
  }
}

TEST(Recompute, of_any_single_layer_gives_the_same_bits) {
  const Trained kept = train<Everything>({.options = options_of("1f1b", 3)}, images());
  using Mark = std::function<void(Everything&)>;
  const std::vector<Mark> marks = {
      [](Everything& n) { n.conv.recompute = n.batch_norm.recompute = true; },
      [](Everything& n) { n.in_place.recompute = true; },  // changes what the layer before it made
      [](Everything& n) { n.drop.recompute = n.in_place.recompute = n.frozen.recompute = true; },
      [](Everything& n) { n.frozen.recompute = n.drifting.recompute = true; },
      [](Everything& n) { n.shared.recompute = true; },  // called twice: two segments
      [](Everything& n) { n.gru.recompute = n.names.recompute = n.norm.recompute = n.head.recompute = true; }};
  for (std::size_t i = 0; i < marks.size(); ++i)
    expect_same(kept, train<Everything>({.options = options_of("1f1b", 3)}, images(), marks[i]), say("mark ", i));
}

/// Counts its forwards, and how many of its outputs are alive.
struct Probe {
  std::atomic<int> forwards{0};
  std::mutex lock;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> outputs;
  std::vector<int> alive_at;  // right after each forward

  void saw(const torch::Tensor& output) {
    const std::lock_guard<std::mutex> guard(lock);
    ++forwards;
    outputs.push_back(output.storage().getWeakStorageImpl());
    alive_at.push_back(count_alive());
  }
  int alive() {
    const std::lock_guard<std::mutex> guard(lock);
    return count_alive();
  }
  int count_alive() const {
    return static_cast<int>(std::ranges::count_if(outputs, [](const auto& output) { return !output.expired(); }));
  }
};
Probe* probe = nullptr;

struct ProbedImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = torch::tanh(x);
    probe->saw(y);
    return y;
  }
};
TORCH_MODULE(Probed);

struct ProbedNetwork : Cell {
  struct Block : Cell {
    Layer linear = add("linear", [] { return torch::nn::Linear(6, 6); });
    Layer probed = add("probed", [] { return Probed(); });
    Layer plain = add("plain", [] { return torch::nn::Linear(6, 6); });
    Value forward(Value x) override { return plain(probed(linear(x))); }
  } block;
  Layer head = add("head", [] { return torch::nn::Linear(6, 4); });
  ProbedNetwork() { add("block", block); }
  Value forward(Value x) override { return head(block(x)); }
};

struct Seen {
  int forwards = 0;
  int alive_at_last_loss = 0;
};

Seen look(const std::function<void(ProbedNetwork&)>& settings) {
  Probe here;
  probe = &here;
  World world({.stages = 1});
  ProbedNetwork network;
  settings(network);
  Seen seen;
  Loss loss = cross_entropy;
  loss.sum = [&](const torch::Tensor& output, const torch::Tensor& target) {
    seen.alive_at_last_loss = here.alive();
    return cross_entropy.sum(output, target);
  };
  Pipeline pipeline(world, network, loss, {.micro_batches = 4, .schedule = "gpipe"});
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  pipeline.train_step(torch::randn({8, 6}), torch::arange(8) % 4).wait();
  seen.forwards = here.forwards;
  probe = nullptr;
  return seen;
}

TEST(Recompute, stores_no_activations_and_runs_twice) {
  const Seen kept = look([](ProbedNetwork&) {});
  EXPECT_EQ(kept.forwards, 4);
  EXPECT_EQ(kept.alive_at_last_loss, 4);
  const Seen again = look([](ProbedNetwork& network) { network.block.recompute = true; });
  EXPECT_EQ(again.forwards, 9);  // and once more, to compare a run without a graph
  EXPECT_EQ(again.alive_at_last_loss, 0);
}

TEST(Recompute, is_inherited_and_the_innermost_annotation_counts) {
  EXPECT_EQ(look([](ProbedNetwork& network) {
              network.recompute = true;
              network.block.recompute = false;
            }).forwards,
            4);
  EXPECT_EQ(look([](ProbedNetwork& network) {
              network.block.recompute = true;
              network.block.probed.recompute = false;
            }).forwards,
            4);
  EXPECT_EQ(look([](ProbedNetwork& network) { network.recompute = true; }).forwards, 9);
}

/// As kernels whose results have other bits where no gradient is wanted.
struct DependsOnGraphImpl : torch::nn::Module {
  torch::Tensor weight = register_parameter("weight", torch::ones({6}));
  torch::Tensor forward(const torch::Tensor& x) { return x * weight * (torch::GradMode::is_enabled() ? 1.0 : 1.001); }
};
TORCH_MODULE(DependsOnGraph);

struct NetworkOfGraphs : Cell {
  Layer first = add("first", [] { return torch::nn::Linear(6, 6); });
  Layer depends = add("depends", [] { return DependsOnGraph(); });
  Layer head = add("head", [] { return torch::nn::Linear(6, 4); });
  Value forward(Value x) override { return head(depends(first(x))); }
};

TEST(Recompute, gives_the_same_bits_where_they_depend_on_the_graph) {
  torch::manual_seed(2);
  const torch::Tensor inputs = torch::randn({8, 6});
  PipelineOptions options = options_of("1f1b", 4);
  const Trained kept = train<NetworkOfGraphs>({.options = options}, inputs);
  options.recompute = true;
  expect_same(kept, train<NetworkOfGraphs>({.options = options}, inputs), "recomputed");
}

TEST(Recompute, rejects_inputs_that_change_only_sometimes) {
  struct Moody : Cell {
    struct Inner : Cell {
      Value forward(Value x) override {
        return apply("copy", [](const Tensors& v) { return v[0] + 1; }, {x});
      }
    } inner;
    Layer a = add("a", [] { return torch::nn::Linear(8, 8); });
    Layer b = add("b", [] { return torch::nn::Linear(8, 4); });
    int calls = 0;
    Moody() {
      add("inner", inner);
      inner.recompute = true;
    }
    Value forward(Value x) override {
      x = a(x);
      const Value y = inner(x);
      // In place in the second micro-batch alone: the checks of the first one find nothing.
      const Value z = apply("moody", [this](const Tensors& v) { return ++calls == 2 ? v[0].mul_(2) : v[0] * 2; }, {x});
      return b(y + z);
    }
  };
  PipelineOf<Moody> pipeline({.stages = 1}, {.micro_batches = 2, .schedule = "gpipe"}, torch_sgd(0.1));
  const std::string text = test::error_text<RankFailure>([&] {
    pipeline.train_step(torch::randn({8, 8}), torch::arange(8) % 4).loss();
  });
  EXPECT_TRUE(test::says(text, "an input of 'copy'", "changed in place")) << text;
}

/// A value that is changed in place afterwards is stored as a copy.
TEST(Recompute, gives_the_same_bits_next_to_layers_that_work_in_place) {
  struct Beside : Cell {
    struct Inner : Cell {
      Value forward(Value x) override {
        return apply("plus", [](const Tensors& v) { return v[0] + 1; }, {x});
      }
    } inner;
    Layer a = add("a", [] { return torch::nn::Linear(8, 8); });
    Layer in_place = add("in_place", [] { return torch::nn::ReLU(torch::nn::ReLUOptions(true)); });
    Layer b = add("b", [] { return torch::nn::Linear(8, 4); });
    Beside() { add("inner", inner); }
    Value forward(Value x) override {
      x = a(x);
      const Value y = inner(x);
      return b(y * in_place(x));
    }
  };
  torch::manual_seed(3);
  const torch::Tensor inputs = torch::randn({8, 8});
  const auto run = [&](const std::function<void(Beside&)>& mark) {
    return train<Beside>({.options = options_of("gpipe", 4)}, inputs, mark);
  };
  const Trained kept = run([](Beside&) {});
  expect_same(kept, run([](Beside& n) { n.inner.recompute = true; }), "the input changes after the segment");
  expect_same(kept, run([](Beside& n) { n.in_place.recompute = true; }), "the input changes inside the segment");
}

/// A value that is read before a segment, twice inside it, and after it.
struct ReadOften : Cell {
  struct Middle : Cell {
    Layer a = add("a", [] { return torch::nn::Linear(8, 8); });
    Layer b = add("b", [] { return torch::nn::Linear(8, 8); });
    Values forward_many(Values v) override {
      Value y = a(v[0]);
      y = y * tanh(v[1]);
      y = b(y);
      return {y * tanh(v[1])};
    }
  } middle;
  Layer in = add("in", [] { return torch::nn::Linear(8, 8); });
  Layer head = add("head", [] { return torch::nn::Linear(8, 4); });
  ReadOften() { add("middle", middle); }
  Value forward(Value x) override {
    x = in(x);
    Value y = tanh(x);
    y = middle(Values{y, x}).front();
    return head(y * tanh(x));
  }
};

TEST(Recompute, adds_gradients_in_the_order_of_the_engine) {
  torch::manual_seed(3);
  const torch::Tensor inputs = torch::randn({64, 8});
  const Trained kept = train<ReadOften>({.options = options_of("gpipe", 2)}, inputs);
  expect_same(kept,
              train<ReadOften>({.options = options_of("gpipe", 2)}, inputs,
                               [](ReadOften& network) { network.middle.recompute = true; }),
              "the middle alone");
}

/// Three successive blocks; in each, three outputs that only the block's backward pass needs.
struct Tower : Cell {
  struct Block : Cell {
    Layer in = add("in", [] { return torch::nn::Linear(8, 8); });
    Layer a = add("a", [] { return Probed(); });
    Layer b = add("b", [] { return Probed(); });
    Layer c = add("c", [] { return Probed(); });
    Layer out = add("out", [] { return torch::nn::Linear(8, 8); });
    Value forward(Value x) override { return out(c(b(a(in(x))))); }
  } first, second, third;
  Tower() {
    add("first", first);
    add("second", second);
    add("third", third);
  }
  Value forward(Value x) override { return third(second(first(x))); }
};
struct FlatTower : Tower {
  Layer head = add("head", [] { return torch::nn::Linear(8, 4); });
  Value forward(Value x) override { return head(Tower::forward(x)); }
};
struct DeepTower : Cell {
  Tower blocks;
  Layer head = add("head", [] { return torch::nn::Linear(8, 4); });
  DeepTower() { add("blocks", blocks); }
  Value forward(Value x) override { return head(blocks(x)); }
};

struct Peaks {
  int forward = 0;
  int backward = 0;
};

/// The peak of live probed outputs in F and in the second runs of B, for one micro-batch.
template <class Network>
Peaks peaks_of(
    bool recompute, const std::function<void(Network&)>& settings = [](Network&) {}) {
  Probe here;
  probe = &here;
  World world({.stages = 1});
  Network network;
  settings(network);
  PipelineOptions options = options_of("gpipe", 1);
  options.recompute = recompute;
  Pipeline pipeline(world, network, cross_entropy, options);
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  for (int step = 0; step < 2; ++step) {
    here.alive_at.clear();
    pipeline.train_step(torch::ones({8, 8}), torch::arange(8) % 4).wait();
  }
  probe = nullptr;
  const auto most = [&](std::size_t begin, std::size_t end) {
    int peak = 0;
    for (std::size_t i = begin; i < std::min(end, here.alive_at.size()); ++i) peak = std::max(peak, here.alive_at[i]);
    return peak;
  };
  return {most(0, 9), most(9, here.alive_at.size())};
}

TEST(Recompute, of_the_whole_network_runs_block_by_block) {
  EXPECT_EQ(peaks_of<FlatTower>(false).forward, 9);
  const Peaks peaks = peaks_of<FlatTower>(true);
  EXPECT_EQ(peaks.forward, 2);   // no graph: a layer's input and output
  EXPECT_EQ(peaks.backward, 3);  // a block's own
}

TEST(Recompute, of_neighbours_runs_cell_by_cell) {
  const Peaks peaks = peaks_of<FlatTower>(false, [](FlatTower& network) {
    network.first.recompute = network.second.recompute = network.third.recompute = true;
  });
  EXPECT_EQ(peaks.forward, 2);
  EXPECT_EQ(peaks.backward, 3);
}

TEST(Recompute, of_an_annotated_cell_is_one_segment_unless_an_inner_cell_is_annotated) {
  EXPECT_EQ(peaks_of<DeepTower>(false, [](DeepTower& network) { network.blocks.recompute = true; }).backward, 9);
  EXPECT_EQ(peaks_of<DeepTower>(true).backward, 9);  // the network calls one Cell
  const auto by_block = [](DeepTower& network) {
    for (auto* block : {&network.blocks.first, &network.blocks.second, &network.blocks.third}) block->recompute = true;
  };
  EXPECT_EQ(peaks_of<DeepTower>(false, by_block).backward, 3);
}

using Ranges = std::vector<std::pair<std::size_t, std::size_t>>;

/// Begin and end of each segment.
Ranges segments_of(const std::vector<layers::CallShape>& calls) {
  Ranges found;
  for (const auto& segment : layers::find_segments(calls, {})) found.emplace_back(segment->begin(), segment->end());
  return found;
}

TEST(Recompute, segments_are_blocks_and_modules_that_contain_modules_and_the_calls_between) {
  const auto call = [](int block, bool recompute, std::shared_ptr<torch::nn::Module> module = nullptr) {
    return layers::CallShape{"call", recompute, {}, 0, 1, std::move(module), block};
  };
  const auto linear = torch::nn::Linear(2, 2).ptr();
  const auto encoder = torch::nn::TransformerEncoderLayer(8, 2).ptr();
  EXPECT_EQ(segments_of({call(0, true), call(0, true, linear), call(1, true), call(1, true), call(2, true)}),
            (Ranges{{0, 2}, {2, 4}, {4, 5}}));
  EXPECT_EQ(segments_of({call(0, true), call(0, true, encoder), call(0, true, encoder), call(0, true, linear)}),
            (Ranges{{0, 1}, {1, 2}, {2, 3}, {3, 4}}));
  EXPECT_EQ(segments_of({call(1, true, encoder), call(1, true, encoder), call(1, false), call(1, true)}),
            (Ranges{{0, 2}, {3, 4}}));
}

TEST(Recompute, by_blocks_gives_the_same_bits) {
  Probe here;
  probe = &here;
  torch::manual_seed(3);
  const torch::Tensor inputs = torch::randn({12, 8});
  const Trained kept = train<FlatTower>({.options = options_of("gpipe", 3)}, inputs);
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    PipelineOptions options = options_of(schedule, 3);
    options.recompute = true;
    for (int stages : {1, 2})
      expect_same(kept, train<FlatTower>({.stages = stages, .options = options}, inputs), say(schedule, stages));
  }
  probe = nullptr;
}

/// Which parameters require gradients changes between steps: a first run must not use the answer of an earlier step.
TEST(Recompute, gives_the_same_bits_while_layers_are_frozen_and_unfrozen) {
  const auto run = [](bool recompute) {
    PipelineOptions options = options_of("gpipe", 2);
    options.recompute = recompute;
    PipelineOf<ReadOften> pipeline({.stages = 1}, options, torch_sgd(0.1));
    torch::manual_seed(3);
    const torch::Tensor inputs = torch::randn({8, 8}), targets = torch::arange(8) % 4;
    const auto step = [&] { pipeline.train_step(inputs, targets).wait(); };
    step();
    for (const char* name : {"in", "middle", "head"}) pipeline.freeze(name);
    pipeline.unfreeze("head");
    step();
    pipeline.unfreeze("middle");
    step();
    pipeline.unfreeze("in");
    step();
    return pipeline.state_dict();
  };
  const auto kept = run(false), again = run(true);
  for (const auto& [name, value] : kept.pairs()) EXPECT_TRUE(torch::equal(value, again[name])) << name;
}

/// A function that passes gradients only sometimes, alone and next to one that always does.
struct Deciding : Cell {
  struct Inner : Cell {
    int* calls = nullptr;
    bool alone = false;
    Values forward_many(Values v) override {
      const Value decided = apply(
          "decided", [this](const Tensors& x) { return (*calls)++ % 4 < 2 ? x[0].detach() : x[0] * 1; }, Values{v[0]});
      return {decided, alone ? decided : tanh(v[0])};
    }
  } inner;
  int calls = 0;
  Layer in = add("in", [] { return torch::nn::Linear(8, 4); });
  Deciding() {
    inner.calls = &calls;
    add("inner", inner);
    inner.recompute = true;
  }
  Value forward(Value x) override {
    const Values both = inner(Values{in(x)});
    return both[0] + both[1];
  }
};

TEST(Recompute, rejects_gradients_that_depend_on_data) {
  PipelineOf<Deciding> pipeline({.stages = 1}, {.micro_batches = 4, .schedule = "gpipe"}, torch_sgd(0.1));
  // The calls in F pass no gradient, none, one and one; those in B do the same.
  const std::string text = test::error_text<RankFailure>([&] {
    pipeline.train_step(torch::randn({8, 8}), torch::arange(8) % 4).wait();
  });
  EXPECT_NE(text.find("requires a gradient in this micro-batch"), std::string::npos) << text;
}

}  // namespace
}  // namespace penstock::test::recompute_test
