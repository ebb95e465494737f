// Attention whose gradients are as exact as LibTorch's, or more.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/model/causal_attention.h"

namespace penstock::test::causal_attention_test {
namespace {

struct Attended {
  torch::Tensor mixed;
  std::vector<torch::Tensor> gradients;
};

/// By causal_attention(), or by LibTorch, with `type` for all.
Attended attended(const AttentionInputs& inputs, c10::ScalarType type, bool by_libtorch, std::optional<double> scale) {
  std::vector<torch::Tensor> leaves;
  for (const torch::Tensor& one : {inputs.queries, inputs.keys, inputs.values})
    leaves.push_back(one.detach().to(type).requires_grad_());
  const bool grouped = inputs.keys.size(1) != inputs.queries.size(1);
  const torch::Tensor mixed =
      by_libtorch ? torch::scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], {}, 0, true, scale, grouped)
                  : causal_attention({leaves[0], leaves[1], leaves[2]}, scale);
  torch::manual_seed(1);
  return {mixed.detach(),
          torch::autograd::grad({mixed}, leaves, {torch::randn(mixed.sizes()).to(mixed.scalar_type())})};
}

double error(const Attended& one, const Attended& exact) {
  double sum = 0;
  for (std::size_t i = 0; i < one.gradients.size(); ++i)
    sum += (one.gradients[i].to(torch::kFloat64) - exact.gradients[i]).norm().item<double>();
  return sum;
}

TEST(CausalAttentionOfBf16, has_libtorchs_values_and_gradients_that_are_as_exact) {
  torch::manual_seed(0);
  for (const std::int64_t positions : {9, 300})  // 300: blocks of 128 queries, the last one shorter
    for (const std::int64_t key_heads : {4, 2})
      for (const std::optional<double> scale : {std::optional<double>(), std::optional(0.3)}) {
        const AttentionInputs inputs{torch::randn({2, 4, positions, 8}).to(torch::kBFloat16),
                                     torch::randn({2, key_heads, positions, 8}).to(torch::kBFloat16),
                                     torch::randn({2, key_heads, positions, 8}).to(torch::kBFloat16)};
        const Attended own = attended(inputs, torch::kBFloat16, /*by_libtorch=*/false, scale);
        const Attended libtorch = attended(inputs, torch::kBFloat16, /*by_libtorch=*/true, scale);
        const Attended exact = attended(inputs, torch::kFloat64, /*by_libtorch=*/true, scale);
        EXPECT_TRUE(torch::equal(own.mixed, libtorch.mixed));
        // At nine positions LibTorch is a little more exact.
        EXPECT_LE(error(own, exact), (positions == 9 ? 1.25 : 1.05) * error(libtorch, exact))
            << key_heads << " heads of keys";
        EXPECT_LT(error(own, exact), positions == 9 ? 0.5 : 2.0) << "gradients in bf16 are rounded to 8 bits";
        for (std::size_t i = 0; i < 3; ++i) {
          EXPECT_TRUE(torch::allclose(own.gradients[i].to(torch::kFloat64), exact.gradients[i], 0.02, 0.05)) << i;
          EXPECT_EQ(own.gradients[i].scalar_type(), torch::kBFloat16);
        }
        EXPECT_EQ(own.gradients[1].sizes(), inputs.keys.sizes());
      }
}

TEST(CausalAttentionOfFp32, is_libtorchs) {
  torch::manual_seed(0);
  const AttentionInputs inputs{torch::randn({2, 4, 9, 8}), torch::randn({2, 4, 9, 8}), torch::randn({2, 4, 9, 8})};
  const Attended own = attended(inputs, torch::kFloat32, /*by_libtorch=*/false, {});
  const Attended libtorch = attended(inputs, torch::kFloat32, /*by_libtorch=*/true, {});
  EXPECT_TRUE(torch::equal(own.mixed, libtorch.mixed));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(torch::equal(own.gradients[i], libtorch.gradients[i])) << i;
}

TEST(CausalSelfAttention, is_causal_attention_between_layouts_of_linear_layers) {
  torch::manual_seed(0);
  for (const c10::ScalarType type : {torch::kFloat32, torch::kBFloat16, torch::kFloat64})
    for (const std::int64_t positions : {9, 520}) {
      const torch::Tensor packed = torch::randn({2, positions, 3 * 2 * 8}).to(type).requires_grad_();
      const auto [queries, keys, values] = split_heads(packed, 2);
      const torch::Tensor apart = merged_heads(causal_attention({queries, keys, values}));
      const torch::Tensor whole = causal_self_attention(packed, 2);
      EXPECT_TRUE(torch::equal(whole, apart));
      const torch::Tensor of_output = torch::randn(whole.sizes()).to(type);
      const auto gradient = [&](const torch::Tensor& of) {
        return torch::autograd::grad({of}, {packed}, {of_output})[0];
      };
      EXPECT_TRUE(torch::equal(gradient(whole), gradient(apart))) << type << ", " << positions << " positions";
    }
}

TEST(CausalSelfAttention, computes_in_the_type_of_autocast) {
  torch::manual_seed(0);
  const torch::Tensor packed = torch::randn({2, 9, 3 * 2 * 8});
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const torch::Tensor mixed = causal_self_attention(packed, 2);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_EQ(mixed.scalar_type(), torch::kBFloat16);
}

}  // namespace
}  // namespace penstock::test::causal_attention_test
