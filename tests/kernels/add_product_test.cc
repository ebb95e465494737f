// Products that accumulate, in one type and from bf16 into fp32.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/kernels/add_product.h"
#include "penstock/kernels/kernels.h"

namespace penstock::test::add_product_test {
namespace {

TEST(AddProduct, adds_or_overwrites_in_any_order_of_memory) {
  torch::manual_seed(0);
  const torch::Tensor a = torch::randn({5, 7}), b = torch::randn({7, 3}), wide = torch::randn({7, 9});
  for (const c10::ScalarType type : {torch::kFloat32, torch::kBFloat16})
    for (const torch::Tensor& left : {a.to(type), a.t().contiguous().t().to(type)})
      for (const torch::Tensor& right : {b.to(type), b.t().contiguous().t().to(type), wide.to(type).narrow(1, 2, 3),
                                         wide.to(type).slice(1, 0, 9, 3)})
        for (const bool is_first : {true, false})
          for (const bool is_transposed : {false, true}) {
            torch::Tensor sum = is_transposed ? torch::ones({3, 5}).t() : torch::ones({5, 3});
            kernels::add_product_to(sum, is_first, left, right);
            const torch::Tensor exact = left.to(torch::kFloat64).mm(right.to(torch::kFloat64)) + (is_first ? 0 : 1);
            const double tolerance = type == torch::kFloat32 ? 1e-5 : 0.05;  // of bf16: the product may be rounded
            EXPECT_TRUE(torch::allclose(sum.to(torch::kFloat64), exact, tolerance, tolerance))
                << type << (is_first ? ", overwritten" : ", added") << (is_transposed ? ", transposed" : "");
          }
}

TEST(AddProduct, does_not_round_a_product_of_bf16_with_amx) {
  if (!kernels::processor_has({"amx_bf16"})) GTEST_SKIP() << "this processor has no AMX";
  torch::manual_seed(0);
  const torch::Tensor a = torch::randn({64, 48}).to(torch::kBFloat16), b = torch::randn({48, 32}).to(torch::kBFloat16);
  torch::Tensor sum = torch::zeros({64, 32});
  kernels::add_product_to(sum, /*is_first=*/true, a, b);
  EXPECT_TRUE(torch::allclose(sum.to(torch::kFloat64), a.to(torch::kFloat64).mm(b.to(torch::kFloat64)), 1e-5, 1e-5));
}

}  // namespace
}  // namespace penstock::test::add_product_test
