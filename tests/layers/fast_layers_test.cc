// Layers with faster kernels compute what LibTorch's do.
#include <gtest/gtest.h>

#include "penstock/layers/fast_layers.h"
#include "penstock/layers/thread_scopes.h"

namespace penstock::test::fast_layers_test {
namespace {

TEST(FewRows, AreLibTorchsProductsWithinRounding) {
  torch::manual_seed(0);
  const torch::Tensor weight = torch::randn({24, 40}), bias = torch::randn({24});
  for (const std::int64_t rows : {0, 1, 2, 3, 5, 6}) {
    const torch::Tensor x = torch::randn({rows, 1, 40}), columns = torch::randn({40, rows}).t();
    for (const torch::Tensor& input : {x, columns})
      for (const torch::Tensor& b : {bias, torch::Tensor()}) {
        const torch::Tensor y = layers::linear_of_few_rows(input, weight, b);
        const torch::Tensor expected = torch::linear(input, weight, b);
        ASSERT_EQ(y.sizes(), expected.sizes());
        EXPECT_TRUE(torch::allclose(y, expected, 1e-5, 1e-5)) << rows << " rows";
      }
  }
}

TEST(FewRows, FollowAutocast) {
  const layers::AutocastGuard autocast(layers::autocast_for(Precision::bf16, c10::DeviceType::CPU));
  const torch::Tensor x = torch::ones({3, 8}), weight = torch::ones({2, 8});
  EXPECT_EQ(layers::linear_of_few_rows(x, weight, {}).scalar_type(), torch::kBFloat16);
}

}  // namespace
}  // namespace penstock::test::fast_layers_test
