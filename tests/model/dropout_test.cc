#include "penstock/model/dropout.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/model/random_place.h"

namespace penstock::dropout_test {
namespace {

torch::Tensor dropped(double p, const RandomPlace& place, const torch::Tensor& input) {
  const RandomPlaceGuard guard(place);
  return Dropout(p)->forward(input);
}

TEST(Dropout, drops_a_fraction_and_preserves_the_mean) {
  const torch::Tensor out = dropped(0.3, {1, 2, 0, "drop"}, torch::ones({200, 500}));
  EXPECT_NEAR((out == 0).to(torch::kFloat64).mean().item<double>(), 0.3, 0.005);
  EXPECT_NEAR(out.mean().item<double>(), 1, 0.01);
  EXPECT_TRUE(torch::all((out == 0) | (out == torch::tensor(1 / 0.7f))).item<bool>());
}

TEST(Dropout, mask_depends_on_the_sample_not_the_micro_batch) {
  const torch::Tensor x = torch::ones({6, 4, 5});
  const torch::Tensor whole = dropped(0.5, {1, 2, 0, "drop"}, x);
  EXPECT_TRUE(torch::equal(whole.narrow(0, 2, 3), dropped(0.5, {1, 2, 2, "drop"}, x.narrow(0, 2, 3))));
}

TEST(Dropout, masks_differ_between_positions) {
  const torch::Tensor x = torch::ones({4, 100});
  const torch::Tensor mask = dropped(0.5, {1, 2, 0, "drop"}, x);
  EXPECT_TRUE(torch::equal(mask, dropped(0.5, {1, 2, 0, "drop"}, x)));
  EXPECT_FALSE(torch::equal(mask, dropped(0.5, {2, 2, 0, "drop"}, x)));
  EXPECT_FALSE(torch::equal(mask, dropped(0.5, {1, 3, 0, "drop"}, x)));
  EXPECT_FALSE(torch::equal(mask, dropped(0.5, {1, 2, 4, "drop"}, x)));
  EXPECT_FALSE(torch::equal(mask, dropped(0.5, {1, 2, 0, "drop#2"}, x)));
  EXPECT_FALSE(torch::equal(mask[0], mask[1]));
}

TEST(Dropout, is_off_in_evaluation_and_torch_s_without_a_pipeline) {
  const torch::Tensor x = torch::ones({3, 50});
  Dropout drop(0.5);
  EXPECT_FALSE(torch::equal(drop(x), x));
  drop->eval();
  EXPECT_TRUE(torch::equal(drop(x), x));
  EXPECT_EQ(RandomPlace::current(), nullptr);
}

TEST(Dropout, refuses_an_invalid_probability) {
  EXPECT_THROW(Dropout(1.0), ConfigError);
  EXPECT_THROW(Dropout(-0.1), ConfigError);
}

}  // namespace
}  // namespace penstock::dropout_test
