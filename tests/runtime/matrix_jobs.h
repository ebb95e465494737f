// The jobs of the matrices: two networks with layers of every kind, and every schedule that trains them. Results are
// compared bit by bit with those of one rank.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "penstock/model/dropout.h"
#include "penstock/pipeline/profiler.h"
#include "penstock/schedule/generate.h"
#include "tests/support/pipeline_of.h"
#include "tests/support/trained.h"

namespace penstock::test {

/// Deep enough for four ranks of three chunks, with a skip connection across them, a dropout layer that is called twice,
/// torch's dropout and random values.
struct DeepNetwork : Cell {
  Layer first = add("first", [] { return torch::nn::Linear(6, 10); });
  std::vector<Layer> hidden;
  std::vector<Layer> norms;
  Layer drop = add("drop", [] { return Dropout(0.2); });
  Layer torch_drop = add("torch_drop", [] { return torch::nn::Dropout(0.2); });
  Layer last = add("last", [] { return torch::nn::Linear(10, 4); });

  DeepNetwork() {
    for (int i = 0; i < 12; ++i) {
      hidden.push_back(add("hidden" + std::to_string(i), [] { return torch::nn::Linear(10, 10); }));
      if (i % 3 == 0)
        norms.push_back(
            add("norm" + std::to_string(i), [] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({10})); }));
    }
  }

  Value forward(Value x) override {
    x = first(x);
    const Value early = x;
    for (std::size_t i = 0; i < hidden.size(); ++i) {
      x = relu(hidden[i](x));
      if (i % 3 == 0) x = norms[i / 3](x);
      if (i == 8) x = x + early;
      if (i == 4 || i == 10) x = drop(x);
      if (i == 2 || i == 7) x = torch_drop(x);
      if (i == 6) x = x + scale(normal_like(x), 0.1);
    }
    return last(x);
  }
};

/// U-shaped: skips across many stages, batch normalisation, dropout, a frozen layer, two layers tied to each other, and
/// values of other types from the first stage to the last.
struct UNetwork : Cell {
  static Layer convolution(UNetwork& net, const std::string& name, std::int64_t in, std::int64_t out,
                           std::int64_t stride = 1) {
    return net.add(name,
                   [=] { return torch::nn::Conv1d(torch::nn::Conv1dOptions(in, out, 3).padding(1).stride(stride)); });
  }
  static Layer batch_norm(UNetwork& net, const std::string& name, std::int64_t channels) {
    return net.add(name, [=] { return torch::nn::BatchNorm1d(channels); });
  }

  Layer conv = convolution(*this, "conv", 2, 4);
  Layer norm = batch_norm(*this, "norm", 4);
  Layer down = convolution(*this, "down", 4, 6, 2);
  Layer down_norm = batch_norm(*this, "down_norm", 6);
  Layer middle = convolution(*this, "middle", 6, 6);
  Layer drop = add("drop", [] { return Dropout(0.2); });
  Layer frozen = add("frozen", [] {
    torch::nn::Conv1d fixed(torch::nn::Conv1dOptions(6, 6, 1));
    for (torch::Tensor& parameter : fixed->parameters()) parameter.set_requires_grad(false);
    return fixed;
  });
  Layer tied = convolution(*this, "tied", 6, 6);
  Layer up = convolution(*this, "up", 12, 4);
  Layer in_place = add("in_place", [] { return torch::nn::ReLU(torch::nn::ReLUOptions(true)); });
  Layer up_norm = batch_norm(*this, "up_norm", 4);
  Layer last = convolution(*this, "last", 8, 4);
  Layer names = add("names", [] { return torch::nn::Embedding(4, 4); });
  Layer head = add("head", [] { return torch::nn::Linear(32, 4); });

  UNetwork() { tied.tie("weight", middle, "weight"); }

  Value forward(Value x) override {          // [n, 2, 8]
    const Value wide = relu(norm(conv(x)));  // [n, 4, 8]
    const Values marks = penstock::apply(
        "marks",
        [](const Tensors& v) {
          return Tensors{v[0].gt(0.1), v[0].argmax(1), {}};
        },
        {wide}, 3);
    const Value narrow = relu(down_norm(down(wide)));  // [n, 6, 4]
    x = tied(frozen(drop(middle(narrow))));
    x = up_norm(in_place(up(concat({x, narrow}, 1))));  // [n, 4, 4]
    x = penstock::apply("twice_as_wide", [](const Tensors& v) { return v[0].repeat_interleave(2, 2); }, {x});
    x = last(concat({x, wide}, 1));  // [n, 4, 8]
    x = penstock::apply("mask", [](const Tensors& v) { return v[2].defined() ? v[2] : v[0] * v[1]; },
                        {x, marks[0], marks[2]});
    return head(flatten(x + transpose(names(marks[1]), 1, 2), 1));
  }
};

struct MatrixCase {
  std::string schedule = "gpipe";
  int stages = 1;
  int chunks = 0;
  int micro_batches = 1;
  WeightGradients weight_gradients = WeightGradients::stream;
  bool recompute = false;
  Precision precision = Precision::fp32;
  std::string device = "cpu";
  bool refuses_invalid_loss = false;
  bool evaluates = true;  // after the second step: adds a loss to compare, and must change nothing else

  std::string name() const {
    return say(schedule, " p ", stages, " v ", chunks, " m ", micro_batches, recompute ? " recompute" : " kept",
               precision == Precision::fp32 ? " fp32" : " bf16",
               weight_gradients == WeightGradients::stream ? " stream" : " fused");
  }
};

/// Calls visit(generator, v) for every generator that trains, with every number of chunks up to `most_chunks`.
template <class Visit>
void for_each_generator(int most_chunks, const Visit& visit) {
  for (const ScheduleGenerator& generator : generators()) {
    if (!trains(generator)) continue;
    for (int v = generator.min_chunks; v <= std::min(most_chunks, generator.max_chunks); ++v)
      visit(std::string(generator.name), v);
  }
}

/// Up to three chunks, for m in {1, 2, 3, 5, 8}.
inline std::vector<MatrixCase> deep_cases(int stages, WeightGradients mode) {
  std::vector<MatrixCase> cases;
  for_each_generator(3, [&](const std::string& schedule, int v) {
    for (int m : {1, 2, 3, 5, 8}) cases.push_back({schedule, stages, v, m, mode});
  });
  return cases;
}

/// Up to two chunks, for m in {2, 5}: with recompute and, in stream mode, without.
inline std::vector<MatrixCase> u_cases(int stages, Precision precision = Precision::fp32) {
  std::vector<MatrixCase> cases;
  for_each_generator(2, [&](const std::string& schedule, int v) {
    for (int m : {2, 5})
      for (const auto mode : {WeightGradients::stream, WeightGradients::fused})
        for (bool recompute : {false, true})
          if (recompute || mode == WeightGradients::stream)
            cases.push_back({schedule, stages, v, m, mode, recompute, precision});
  });
  return cases;
}

struct MatrixOutcome : Trained {
  std::vector<RankPeak> peaks;
};

/// Three steps; batches of 11 samples, the last one of 6: fewer than the larger m. `sizes` are those of a sample.
template <class Make>
MatrixOutcome run_matrix_job(World& world, Cell& network, const MatrixCase& one, const std::string& partition,
                             const Make& optimizer, std::vector<std::int64_t> sizes) {
  Pipeline pipeline(world, network, cross_entropy,
                    {.micro_batches = one.micro_batches,
                     .schedule = one.schedule,
                     .chunks = one.chunks,
                     .weight_gradients = one.weight_gradients,
                     .recompute = one.recompute,
                     .device = one.device,
                     .precision = one.precision,
                     .partition = partition,
                     .seed = 5});
  pipeline.optimize_with(optimizer);
  MatrixOutcome outcome;
  torch::manual_seed(7);
  for (const std::int64_t samples : {11, 11, 6}) {
    std::vector<std::int64_t> shape{samples};
    shape.insert(shape.end(), sizes.begin(), sizes.end());
    const torch::Tensor inputs = torch::randn(shape), targets = torch::arange(samples) % 4;
    const StepOptions how{.refuse_invalid_loss = one.refuses_invalid_loss};
    outcome.losses.push_back(pipeline.train_step(inputs, targets, how).loss());
    if (one.evaluates && outcome.losses.size() == 2)
      outcome.losses.push_back(pipeline.evaluate(inputs, targets).loss());
  }
  outcome.state = pipeline.state_dict();
  outcome.peaks = Profiler(pipeline).local_peaks();
  return outcome;
}

inline MatrixOutcome run_deep_job(World& world, const MatrixCase& one) {
  DeepNetwork network;
  return run_matrix_job(world, network, one, "parameters", torch_sgd(0.1), {6});
}

inline MatrixOutcome run_u_job(World& world, const MatrixCase& one) {
  UNetwork network;
  return run_matrix_job(world, network, one, "uniform", sgd({.learning_rate = 0.1, .momentum = 0.9}), {2, 8});
}

/// How the U-shaped network's jobs on the devices of `world` differ from the job of one rank on the CPU; empty: not at
/// all. Collective.
inline std::string difference_of_u_jobs(World& world, const std::string& device, int micro_batches) {
  World alone({.stages = 1, .replicas = world.replicas()});
  std::map<WeightGradients, MatrixOutcome> expected;
  for (const auto mode : {WeightGradients::stream, WeightGradients::fused})
    expected[mode] = run_u_job(alone, {"gpipe", 1, 1, micro_batches, mode});
  int cases = 0;
  for (MatrixCase one : u_cases(world.stages())) {
    if (one.micro_batches != micro_batches) continue;
    ++cases;
    one.device = device;
    const std::string names = difference(expected.at(one.weight_gradients), run_u_job(world, one));
    if (!names.empty()) return one.name() + ": " + names;
  }
  return cases > 5 ? "" : say("only ", cases, " cases");
}

}  // namespace penstock::test
