// A network trained for three steps and its results, for the runtime tests to compare.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "penstock/penstock.h"
#include "tests/runtime/split_1f1b.h"
#include "tests/support/expect_same.h"
#include "tests/support/trained.h"

namespace penstock::test {

struct Training {
  int stages = 1;
  int replicas = 1;
  PipelineOptions options = {};
};

/// `settings` may set annotations.
template <class Network>
Trained train(
    const Training& how, const torch::Tensor& inputs, const std::function<void(Network&)>& settings = [](Network&) {}) {
  World world({.stages = how.stages, .replicas = how.replicas});
  Network network;
  settings(network);
  Pipeline pipeline(world, network, cross_entropy, how.options);
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  Trained trained;
  const torch::Tensor targets = torch::arange(inputs.size(0)) % 4;
  for (int step = 0; step < 3; ++step) trained.losses.push_back(pipeline.train_step(inputs, targets).loss());
  trained.losses.push_back(pipeline.evaluate(inputs, targets).loss());
  trained.state = pipeline.state();
  return trained;
}

/// Compares by norm, relative to at least `smallest`, for tensors that start at zero.
inline void expect_close(const Trained& expected, const Trained& got, double relative, double smallest = 1e-3) {
  ASSERT_EQ(expected.losses.size(), got.losses.size());
  for (std::size_t i = 0; i < expected.losses.size(); ++i)
    EXPECT_NEAR(expected.losses[i], got.losses[i], relative * (1 + std::abs(expected.losses[i])));
  for (const auto& [name, value] : expected.state) {
    const torch::Tensor wanted = value.to(torch::kFloat64), other = got.state.at(name).to(torch::kFloat64);
    EXPECT_LE((wanted - other).norm().item<double>(), relative * (smallest + wanted.norm().item<double>())) << name;
  }
}

}  // namespace penstock::test
