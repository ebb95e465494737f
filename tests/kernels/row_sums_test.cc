#include <utility>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/kernels/row_sums.h"

namespace penstock::test::row_sums_test {
namespace {

TEST(SumOfRows, is_exact_to_fp32_in_any_type_and_order_of_memory) {
  torch::manual_seed(0);
  const torch::Tensor wide = torch::randn({33, 1000});
  for (const auto& [from, to] :
       {std::pair(torch::kFloat32, torch::kFloat32), std::pair(torch::kBFloat16, torch::kFloat32),
        std::pair(torch::kBFloat16, torch::kBFloat16)}) {
    const torch::Tensor all = wide.to(from);
    for (const torch::Tensor& rows : {all, all.narrow(1, 3, 517), all.narrow(1, 3, 5), all.t().contiguous().t(),
                                      all.slice(1, 0, 1000, 3), all.narrow(0, 0, 1), all.narrow(0, 0, 0)}) {
      const torch::Tensor sum = kernels::sum_of_rows(rows, to);
      EXPECT_EQ(sum.scalar_type(), to);
      const torch::Tensor exact = rows.to(torch::kFloat64).sum(0);
      const double tolerance = to == torch::kFloat32 ? 1e-5 : 0.05;
      EXPECT_TRUE(torch::allclose(sum.to(torch::kFloat64), exact, tolerance, tolerance))
          << from << " to " << to << " " << rows.sizes();
    }
  }
}

}  // namespace
}  // namespace penstock::test::row_sums_test
