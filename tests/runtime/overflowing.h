// A network whose forward pass overflows for large inputs, for tests of losses that are not finite.
#pragma once

#include <cstdint>

#include <torch/torch.h>

#include "penstock/model/dropout.h"
#include "penstock/penstock.h"
#include "tests/support/trained.h"

namespace penstock::test {

/// The function 'square' gives infinite numbers for inputs of 1e25. Has running statistics and random numbers.
struct Overflowing : Cell {
  Layer a = add("a", [] { return torch::nn::Linear(12, 16); });
  Layer norm = add("norm", [] { return torch::nn::BatchNorm1d(16); });
  Layer b = add("b", [] { return torch::nn::Linear(16, 16); });
  Layer drop = add("drop", [] { return Dropout(0.25); });
  Layer c = add("c", [] { return torch::nn::Linear(16, 16); });
  Layer norm_c = add("norm_c", [] { return torch::nn::BatchNorm1d(16); });
  Layer d = add("d", [] { return torch::nn::Linear(16, 4); });

  Value forward(Value x) override {
    const auto square = [](const Tensors& t) { return t[0] * t[0]; };
    x = norm(apply("square", square, Values{a(x)}));
    x = drop(relu(b(x)));
    return d(relu(norm_c(c(x))));
  }
};

struct Samples {
  explicit Samples(int step, std::int64_t count = 16) {
    torch::manual_seed(static_cast<std::uint64_t>(step));
    inputs = torch::randn({count, 12});
    targets = torch::randint(0, 3, {count}, torch::kInt64);
  }
  /// The same with a row that overflows.
  Samples& spoil(std::int64_t row) {
    inputs[row].fill_(1e25);
    return *this;
  }
  torch::Tensor inputs, targets;
};

/// A pipeline of the network. Adam has a state, which a refused step must not change.
struct OverflowJob {
  OverflowJob(const WorldOptions& ranks, PipelineOptions options, const Loss& loss = cross_entropy)
      : world(ranks), pipeline(world, network, loss, with_defaults(std::move(options))) {
    pipeline.optimize_with([](auto parameters) { return torch::optim::Adam(parameters, 0.01); });
  }
  static PipelineOptions with_defaults(PipelineOptions options) {
    options.seed = 3;
    options.partition = "uniform";
    return options;
  }
  StepResult step(const Samples& samples, const StepOptions& options = {.refuse_invalid_loss = true}) {
    return pipeline.train_step(samples.inputs, samples.targets, options);
  }

  World world;
  Overflowing network;
  Pipeline pipeline;
};

}  // namespace penstock::test
