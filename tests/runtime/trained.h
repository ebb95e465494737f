// Trainings by a pipeline and by LibTorch without one, for tests to compare.
#pragma once

#include <functional>

#include "penstock/penstock.h"
#include "tests/runtime/split_1f1b.h"
#include "tests/support/expect_same.h"

namespace penstock::test {

struct Training {
  int stages = 1;
  int replicas = 1;
  PipelineOptions options = {};
};

/// Steps of a pipeline on one batch.
inline Trained train(Pipeline& pipeline, const BatchTensors& inputs, const BatchTensors& targets, int steps = 3) {
  Trained trained;
  for (int step = 0; step < steps; ++step) trained.losses.push_back(pipeline.train_step(inputs, targets).loss());
  trained.state = pipeline.state_dict();
  return trained;
}

/// Three steps of a new network, and an evaluation. `settings` may set annotations.
template <class Network>
Trained train(
    const Training& how, const torch::Tensor& inputs, const std::function<void(Network&)>& settings = [](Network&) {}) {
  World world({.stages = how.stages, .replicas = how.replicas});
  Network network;
  settings(network);
  Pipeline pipeline(world, network, cross_entropy, how.options);
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  const torch::Tensor targets = torch::arange(inputs.size(0)) % 4;
  Trained trained = train(pipeline, inputs, targets);
  trained.losses.push_back(pipeline.evaluate(inputs, targets).loss());
  return trained;
}

struct PlainTraining {
  int steps = 3;
  double rate = 0.1;
  std::uint64_t seed = 0;  // of the initial values
};

/// Steps of LibTorch's autograd and SGD on a standalone network, of which `loss` returns the loss.
inline Trained train_plainly(Cell& network, const std::function<torch::Tensor()>& loss, const PlainTraining& how = {}) {
  std::vector<torch::Tensor> parameters;
  for (const auto& [name, parameter] : network.named_parameters(how.seed))
    if (parameter.requires_grad()) parameters.push_back(parameter);
  torch::optim::SGD optimizer(parameters, how.rate);
  Trained trained;
  for (int step = 0; step < how.steps; ++step) {
    optimizer.zero_grad();
    const torch::Tensor of_step = loss();
    of_step.backward();
    optimizer.step();
    trained.losses.push_back(of_step.item<double>());
  }
  trained.state = network.state_dict();
  return trained;
}

}  // namespace penstock::test
