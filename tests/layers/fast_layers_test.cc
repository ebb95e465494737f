// Layers with faster kernels compute what LibTorch's do.
#include <limits>
#include <stdexcept>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/kernels/cpu_kernels.h"
#include "penstock/kernels/kernels.h"
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

// In bf16 the function and its derivative are computed in fp32 and rounded once.
TEST(FastGelu, ComputesBf16InFp32) {
  if (!has_cpu_kernels()) GTEST_SKIP() << "built without the tuned kernels";
  const torch::nn::GELU gelu(torch::nn::GELUOptions().approximate("tanh"));
  BuiltLayer layer{.module = gelu.ptr(), .forward = [](const Tensors&) -> Tensors { throw std::logic_error("plain"); }};
  layers::make_fast(layer);
  const torch::Tensor x = torch::linspace(-6, 6, 301).to(torch::kBFloat16).requires_grad_();
  const torch::Tensor exact = x.detach().to(torch::kFloat64).requires_grad_();
  const torch::Tensor y = layer.forward({x}).front(), wanted = torch::gelu(exact, "tanh");
  EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(torch::allclose(y.to(torch::kFloat64), wanted, 1.0 / 256, 1e-6));
  const torch::Tensor dx = torch::autograd::grad({y}, {x}, {torch::ones_like(y)}).front();
  EXPECT_TRUE(
      torch::allclose(dx.to(torch::kFloat64), torch::autograd::grad({wanted.sum()}, {exact}).front(), 1.0 / 256, 1e-5));
}

TEST(FastGelu, RoundsBf16ToTheNearest) {
  if (!has_cpu_kernels()) GTEST_SKIP() << "built without the tuned kernels";
  torch::Tensor x = torch::linspace(-8, 8, 1301);
  x[0] = std::numeric_limits<float>::quiet_NaN();
  x[1] = std::numeric_limits<float>::infinity();
  x = x.to(torch::kBFloat16);
  const torch::Tensor wide = x.to(torch::kFloat32), dy = torch::linspace(-3, 3, 1301).to(torch::kBFloat16);
  const auto same = [](const torch::Tensor& bf16, const torch::Tensor& fp32) {
    return torch::allclose(bf16, fp32.to(torch::kBFloat16), /*rtol=*/0, /*atol=*/0, /*equal_nan=*/true);
  };
  EXPECT_TRUE(same(kernels::gelu_of(x), kernels::gelu_of(wide)));
  EXPECT_TRUE(same(kernels::gelu_input_gradient(x, dy), kernels::gelu_input_gradient(wide, dy.to(torch::kFloat32))));
}

}  // namespace
}  // namespace penstock::test::fast_layers_test
