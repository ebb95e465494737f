// Every schedule on one GPU, with all ranks on it, trains as one rank on it does. A program of its own, because the
// test device takes the place of CUDA in LibTorch.
#include <gtest/gtest.h>

#include "tests/runtime/matrix_jobs.h"

namespace penstock::test::gpu_test {
namespace {

const char* const device = "cuda:0";

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    if (torch::cuda::device_count() == 0) GTEST_SKIP() << "no GPU here";
  }
};

/// Kernels of CUDA may add in another order in each run.
void expect_close(const StateDict& expected, const StateDict& got, const std::string& name) {
  ASSERT_EQ(got.size(), expected.size()) << name;
  for (const auto& [key, value] : expected.pairs())
    ASSERT_TRUE(torch::allclose(got[key].to(torch::kFloat64), value.to(torch::kFloat64), 1e-4, 1e-5))
        << key << ", " << name;
}

TEST_F(Gpu, every_schedule_trains_as_one_rank) {
  for (int stages = 1; stages <= 4; ++stages) {
    World world({.stages = stages});
    for (MatrixCase one : deep_cases(stages, WeightGradients::stream)) {
      if (one.micro_batches != 5) continue;
      World alone({.stages = 1});
      MatrixCase expected{"gpipe", 1, 1, 5};
      expected.device = one.device = device;
      expect_close(run_deep_job(alone, expected).state, run_deep_job(world, one).state, one.name());
    }
  }
}

TEST_F(Gpu, skips_ties_recompute_and_running_statistics_train_as_one_rank) {
  for (const int replicas : {1, 2})
    for (int stages = 1; stages <= 4; ++stages) {
      World world({.stages = stages, .replicas = replicas});
      for (MatrixCase one : u_cases(stages)) {
        if (one.micro_batches != 5 || one.weight_gradients != WeightGradients::stream) continue;
        World alone({.stages = 1, .replicas = replicas});
        MatrixCase expected{"gpipe", 1, 1, 5};
        expected.device = one.device = device;
        expect_close(run_u_job(alone, expected).state, run_u_job(world, one).state, one.name());
      }
    }
}

}  // namespace
}  // namespace penstock::test::gpu_test
