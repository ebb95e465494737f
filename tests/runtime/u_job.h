// A training job over a U-shaped network: skips across many stages, batch normalisation, dropout, a frozen layer, two
// layers tied to each other, and values of other types from the first stage to the last.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "penstock/model/dropout.h"
#include "penstock/penstock.h"
#include "penstock/pipeline/profiler.h"
#include "penstock/schedule/generate.h"
#include "tests/support/trained.h"

namespace penstock::test {

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

struct UCase {
  std::string schedule = "gpipe";
  int stages = 1;
  int chunks = 0;
  int micro_batches = 1;
  WeightGradients weight_gradients = WeightGradients::stream;
  bool recompute = false;
  Precision precision = Precision::fp32;
  std::string device = "cpu";

  std::string name() const {
    return say(schedule, " p ", stages, " v ", chunks, " m ", micro_batches, recompute ? " recompute" : " kept",
               precision == Precision::fp32 ? " fp32" : " bf16",
               weight_gradients == WeightGradients::stream ? " stream" : " fused");
  }
};

/// Every generator that trains, with one and two chunks, for m in {2, 5}: with recompute and, in stream mode, without.
inline std::vector<UCase> u_cases(int stages, Precision precision = Precision::fp32) {
  std::vector<UCase> cases;
  for (const Generator& generator : generators()) {
    if (generate(generator.name, {.chunks = generator.default_chunks}).is_forward_only()) continue;
    for (int v = generator.min_chunks; v <= std::min(2, generator.max_chunks); ++v)
      for (int m : {2, 5})
        for (const auto mode : {WeightGradients::stream, WeightGradients::fused})
          for (bool recompute : {false, true})
            if (recompute || mode == WeightGradients::stream)
              cases.push_back({std::string(generator.name), stages, v, m, mode, recompute, precision});
  }
  return cases;
}

struct UOutcome : Trained {
  std::vector<RankPeak> peaks;
};

/// Three steps, and an evaluation after the second.
inline UOutcome run_u_job(World& world, const UCase& one) {
  UNetwork network;
  const PipelineOptions options{.micro_batches = one.micro_batches,
                                .schedule = one.schedule,
                                .chunks = one.chunks,
                                .weight_gradients = one.weight_gradients,
                                .recompute = one.recompute,
                                .device = one.device,
                                .precision = one.precision,
                                .partition = "uniform",
                                .seed = 5};
  Pipeline pipeline(world, network, cross_entropy, options);
  pipeline.optimize_with(sgd({.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0, .nesterov = false}));
  UOutcome outcome;
  torch::manual_seed(7);
  for (const std::int64_t samples : {11, 11, 6}) {
    const torch::Tensor inputs = torch::randn({samples, 2, 8});
    const torch::Tensor targets = torch::arange(samples) % 4;
    outcome.losses.push_back(pipeline.train_step(inputs, targets).loss());
    if (outcome.losses.size() == 2) outcome.losses.push_back(pipeline.evaluate(inputs, targets).loss());
  }
  outcome.state = pipeline.state();
  outcome.peaks = Profiler(pipeline).local_peaks();
  return outcome;
}

}  // namespace penstock::test
