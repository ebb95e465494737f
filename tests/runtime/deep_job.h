// A training job over a network deep enough for four ranks of three chunks, with a skip connection across them, a
// dropout layer that is called twice, torch's dropout and random values.
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

struct DeepCase {
  std::string schedule = "gpipe";
  int stages = 1;
  int chunks = 0;
  int micro_batches = 1;
  WeightGradients weight_gradients = WeightGradients::stream;
  std::string device = "cpu";
  bool refuses_invalid_loss = false;

  std::string name() const {
    return say(schedule, " p ", stages, " v ", chunks, " m ", micro_batches,
               weight_gradients == WeightGradients::stream ? " stream" : " fused");
  }
};

/// Every generator that trains, with every number of chunks up to 3, for m in {1, 2, 3, 5, 8}.
inline std::vector<DeepCase> deep_cases(int stages, WeightGradients mode) {
  std::vector<DeepCase> cases;
  for (const Generator& generator : generators()) {
    if (generate(generator.name, {.chunks = generator.default_chunks}).is_forward_only()) continue;
    for (int v = generator.min_chunks; v <= std::min(3, generator.max_chunks); ++v)
      for (int m : {1, 2, 3, 5, 8}) cases.push_back({std::string(generator.name), stages, v, m, mode});
  }
  return cases;
}

struct DeepOutcome : Trained {
  std::vector<RankPeak> peaks;
};

/// Three steps and an evaluation; batches of 11 samples, the last one of 6: fewer than the larger m.
inline DeepOutcome run_deep_job(World& world, const DeepCase& one, bool evaluates = true) {
  DeepNetwork network;
  const PipelineOptions options{.micro_batches = one.micro_batches,
                                .schedule = one.schedule,
                                .chunks = one.chunks,
                                .weight_gradients = one.weight_gradients,
                                .device = one.device,
                                .seed = 5};
  Pipeline pipeline(world, network, cross_entropy, options);
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  DeepOutcome outcome;
  torch::manual_seed(7);
  for (const std::int64_t samples : {11, 11, 6}) {
    const torch::Tensor inputs = torch::randn({samples, 6});
    const torch::Tensor targets = torch::arange(samples) % 4;
    const StepOptions how{.refuse_invalid_loss = one.refuses_invalid_loss};
    outcome.losses.push_back(pipeline.train_step(inputs, targets, how).loss());
    // An evaluation between the steps adds a number to compare, and must change nothing else.
    if (evaluates && outcome.losses.size() == 2) outcome.losses.push_back(pipeline.evaluate(inputs, targets).loss());
  }
  outcome.state = pipeline.state();
  outcome.peaks = Profiler(pipeline).local_peaks();
  return outcome;
}

}  // namespace penstock::test
