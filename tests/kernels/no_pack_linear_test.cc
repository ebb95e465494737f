// BLIS's products compared with LibTorch's, for every memory order that a layer may receive.
#include "penstock/kernels/no_pack_linear.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"

namespace penstock::test::no_pack_linear_test {
namespace {

TEST(NoPackLinear, equals_torch) {
  if (!has_no_pack_linear()) {
    EXPECT_THROW(no_pack_linear({}, {}, {}), InternalError);
    GTEST_SKIP() << "built without BLIS";
  }
  torch::manual_seed(1);
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{16, 64}, {1, 64}, {64}, {3, 5, 64}, {7, 1, 64}})
    for (const std::int64_t out : {1, 10, 48, 257})
      for (const bool is_arranged : {false, true}) {
        torch::Tensor x = torch::randn(sizes), dy = torch::randn_like(torch::linear(x, torch::empty({out, 64})));
        const torch::Tensor weight = torch::randn({out, 64}), bias = torch::randn({out});
        const torch::Tensor y = torch::linear(x, weight, bias), plain = torch::linear(x, weight);
        const torch::Tensor dx = dy.matmul(weight);
        if (is_arranged) {
          x = feature_by_feature(x);
          dy = feature_by_feature(dy);
        }
        EXPECT_TRUE(torch::allclose(no_pack_linear(x, weight, bias), y, 1e-4, 1e-4)) << x.sizes() << " " << out;
        EXPECT_TRUE(torch::allclose(no_pack_linear(x, weight, {}), plain, 1e-4, 1e-4)) << x.sizes() << " " << out;
        EXPECT_TRUE(torch::allclose(no_pack_input_gradient(dy, weight), dx, 1e-4, 1e-4)) << x.sizes() << " " << out;
      }
}

TEST(FeatureByFeature, copies_only_tensors_of_another_layout) {
  const torch::Tensor x = torch::randn({3, 5, 8});
  const torch::Tensor moved = feature_by_feature(x);
  EXPECT_TRUE(torch::equal(moved, x));
  EXPECT_EQ(moved.reshape({15, 8}).stride(0), 1);
  EXPECT_TRUE(feature_by_feature(moved).is_alias_of(moved));
  if (has_no_pack_linear()) {
    const torch::Tensor y = no_pack_linear(x, torch::randn({4, 8}), {});
    EXPECT_TRUE(feature_by_feature(y).is_alias_of(y));
  }
}

}  // namespace
}  // namespace penstock::test::no_pack_linear_test
