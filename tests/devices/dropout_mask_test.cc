// Masks of penstock::Dropout on a device: computed there, without a copy or a wait, with the values of the CPU.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "penstock/base/device_copy.h"
#include "penstock/base/error.h"
#include "penstock/model/dropout.h"
#include "penstock/model/random_place.h"
#include "tests/support/test_device.h"

namespace penstock::test::dropout_mask_test {
namespace {

class DropoutMask : public testing::Test {
 protected:
  void SetUp() override { stream_order().take_violations(); }
  void TearDown() override { EXPECT_EQ(stream_order().take_violations(), std::vector<std::string>{}); }

  static torch::Tensor dropped(const DropoutOptions& options, const RandomPlace& place, const torch::Tensor& input) {
    const RandomPlaceGuard guard(place);
    return Dropout(options)->forward(input);
  }

  static void expect_equal(const DropoutOptions& options, const RandomPlace& place, const torch::Tensor& input) {
    const torch::Tensor expected = dropped(options, place, input);
    const torch::Tensor on_device = dropped(options, place, input.to(test_device()));
    EXPECT_EQ(on_device.device(), test_device());
    EXPECT_EQ(on_device.scalar_type(), expected.scalar_type());
    EXPECT_TRUE(torch::equal(on_device.cpu(), expected))
        << input.sizes() << " p " << options.p << " sample " << place.first_sample << " seed " << place.seed;
  }
};

TEST_F(DropoutMask, equals_that_of_the_cpu) {
  // Widths around a block of four numbers; more than one block; no element.
  for (const std::int64_t width : {1, 3, 4, 5, 8, 1001, 0})
    for (const std::int64_t samples : {1, 7, 0})
      for (const double p : {0.1, 0.5, 0.999})
        expect_equal({.p = p}, {.seed = 3, .step = 5, .first_sample = 2, .call = "drop"},
                     torch::ones({samples, width}));
}

TEST_F(DropoutMask, equals_that_of_the_cpu_for_all_bits_of_keys_and_samples) {
  const torch::Tensor input = torch::ones({5, 33});
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1} << 63, ~std::uint64_t{0}})
    for (const std::int64_t sample :
         {std::int64_t{0}, (std::int64_t{1} << 31) - 2, (std::int64_t{1} << 32) - 2, (std::int64_t{5} << 40) - 3})
      for (const std::uint64_t step : {0, 1, 1000})
        expect_equal({.p = 0.5}, {.seed = seed, .step = step, .first_sample = sample, .call = "block.drop#2"}, input);
}

TEST_F(DropoutMask, equals_that_of_the_cpu_for_every_layout_and_type) {
  const RandomPlace place{.seed = 1, .step = 2, .first_sample = 4, .call = "drop", .samples = 3};
  expect_equal({.p = 0.3, .sample_dimension = 1}, place, torch::ones({5, 3, 2}));
  expect_equal({.p = 0.3, .sample_dimension = -1}, place, torch::ones({5, 2, 3}));
  expect_equal({.p = 0.3, .flattened = true}, place, torch::ones({12, 5}));
  for (const auto type : {torch::kFloat64, torch::kBFloat16, torch::kHalf})
    expect_equal({.p = 0.3}, place, torch::ones({3, 50}, type));
  EXPECT_THROW(dropped({.p = 0.3}, place, torch::ones({4, 5}).to(test_device())), ScheduleError);
}

TEST_F(DropoutMask, is_computed_on_the_device) {
  const torch::Tensor input = torch::ones({6, 40}).to(test_device());
  const RandomPlace place{.seed = 1, .step = 2, .call = "drop"};
  const int copied = stream_order().launches("copy from the host");
  stream_order().forget_synchronizations();
  const torch::Tensor output = dropped({.p = 0.5}, place, input);
  EXPECT_EQ(stream_order().launches("copy from the host"), copied);
  EXPECT_TRUE(stream_order().synchronizations().empty());
  to_device(torch::ones(1), test_device());
  EXPECT_EQ(stream_order().launches("copy from the host"), copied + 1) << "a copy is counted";
}

}  // namespace
}  // namespace penstock::test::dropout_mask_test
