// Trainings of ranks that are joined in this process (joined_here.h), each on a test device, compared with those of
// ranks on the CPU, bit by bit.
#pragma once

#include <optional>

#include <gtest/gtest.h>

#include "tests/devices/joined_here.h"
#include "tests/runtime/matrix_jobs.h"

namespace penstock::test {

/// Every schedule of two and three ranks; in device channels in steps that refuse an invalid loss.
inline void compare_deep_jobs(const std::optional<DeviceGroups>& groups = {}) {
  for (const int stages : {2, 3}) {
    MatrixOutcome alone;
    {
      World world({.stages = 1});
      alone = run_deep_job(world, {.micro_batches = 3, .evaluates = false});
    }
    JoinedWorld joined({.stages = stages}, groups);
    int cases = 0;
    for (MatrixCase one : deep_cases(stages, WeightGradients::stream)) {
      if (one.micro_batches != 3) continue;
      one.device = "test";
      one.refuses_invalid_loss = groups.has_value();
      one.evaluates = false;
      ++cases;
      ASSERT_EQ(difference(alone, run_deep_job(joined.world, one)), "") << one.name();
    }
    EXPECT_GT(cases, 5);
  }
}

/// Skips, tied parameters and recompute.
inline void compare_u_jobs(const WorldOptions& options, int micro_batches,
                           const std::optional<DeviceGroups>& groups = {}) {
  JoinedWorld joined(options, groups);
  EXPECT_EQ(difference_of_u_jobs(joined.world, "test", micro_batches), "");
}

/// The state of two pipelines in one world after parts of steps, accumulation, evaluations, freezing and short batches,
/// with ties, skips and clipping. In `options` the schedule, clipping and the device are set here.
inline StateDict state_after_whatever_else(World& world, PipelineOptions options) {
  options.micro_batches = 3;
  options.schedule = "zb-h1";
  options.clip_norm = 0.5;
  options.device = torch::Device("test");
  options.partition = "uniform";
  UNetwork networks[2];
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  for (UNetwork& network : networks) {
    options.update_every = pipelines.empty() ? 1 : 2;
    pipelines.push_back(std::make_unique<Pipeline>(world, network, cross_entropy, options));
    pipelines.back()->optimize_with([](const auto& parameters) { return torch::optim::SGD(parameters, 0.1); });
  }
  torch::manual_seed(3);
  const auto inputs = [](std::int64_t samples) { return torch::randn({samples, 2, 8}); };
  const auto targets = [](std::int64_t samples) { return torch::arange(samples) % 4; };
  const auto train_both = [&] {
    for (const std::int64_t samples : {8, 8, 5, 8, 5, 5})
      for (const auto& each : pipelines) each->train_step(inputs(samples), targets(samples)).wait();
  };
  Pipeline& first = *pipelines.front();
  const auto in_parts = [&](std::int64_t samples) {
    first.forward_backward(inputs(samples), targets(samples)).wait();
    first.forward_backward(inputs(samples), targets(samples)).wait();
    first.reduce_gradients();
    first.step();
  };
  train_both();
  for (const std::int64_t samples : {8, 5, 8, 5, 8, 5, 8}) in_parts(samples);
  first.evaluate(inputs(8), targets(8)).loss();
  train_both();
  first.freeze("conv");
  train_both();
  first.sync_ties();
  first.unfreeze("conv");
  train_both();
  StateDict state = first.state_dict();
  for (const auto& [name, tensor] : pipelines.back()->state_dict().pairs()) state.insert("second " + name, tensor);
  return state;
}

}  // namespace penstock::test
