// Trainings of ranks that are joined in this process (joined_here.h), each on a test device, compared with those of
// ranks on the CPU, bit by bit.
#pragma once

#include <map>
#include <optional>

#include <gtest/gtest.h>

#include "tests/devices/joined_here.h"
#include "tests/runtime/deep_job.h"
#include "tests/runtime/u_job.h"

namespace penstock::test {

/// Every schedule of two and three ranks; static steps refuse an invalid loss.
inline void compare_deep_jobs(const std::optional<DeviceGroups>& groups = {}, bool static_shapes = false) {
  for (const int stages : {2, 3}) {
    DeepOutcome alone;
    {
      World world({.stages = 1});
      alone = run_deep_job(world, {"gpipe", 1, 1, 3, WeightGradients::stream}, false);
    }
    JoinedWorld joined({.stages = stages}, groups);
    int cases = 0;
    for (DeepCase one : deep_cases(stages, WeightGradients::stream)) {
      if (one.micro_batches != 3) continue;
      one.device = "test";
      one.static_shapes = one.refuses_invalid_loss = static_shapes;
      ++cases;
      ASSERT_EQ(difference(alone, run_deep_job(joined.world, one, false)), "") << one.name();
    }
    EXPECT_GT(cases, 5);
  }
}

/// Skips, tied parameters and recompute.
inline void compare_u_jobs(const WorldOptions& options, int micro_batches,
                           const std::optional<DeviceGroups>& groups = {}, bool static_shapes = false) {
  std::map<WeightGradients, UOutcome> alone;
  {
    World world({.stages = 1, .replicas = options.replicas});
    for (const auto mode : {WeightGradients::stream, WeightGradients::fused})
      alone[mode] = run_u_job(world, {"gpipe", 1, 1, micro_batches, mode});
  }
  JoinedWorld joined(options, groups);
  for (UCase one : u_cases(options.stages)) {
    if (one.micro_batches != micro_batches) continue;
    one.device = "test";
    one.static_shapes = static_shapes;
    ASSERT_EQ(difference(alone.at(one.weight_gradients), run_u_job(joined.world, one)), "") << one.name();
  }
}

}  // namespace penstock::test
