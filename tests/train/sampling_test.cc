#include "penstock/train/generate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::test::sampling_test {
namespace {

const std::vector<float> logits{0, 2, 1, 2, -30};

std::map<std::int64_t, double> shares(const SamplingOptions& options) {
  std::map<std::int64_t, double> shares;
  constexpr int draws = 20000;
  for (int i = 0; i < draws; ++i) shares[sample_token(logits, options, (i + 0.5) / draws)] += 1.0 / draws;
  return shares;
}

TEST(Sampling, temperature_0_takes_the_most_likely_and_then_the_lower) {
  for (const double number : {0.0, 0.5, 0.999}) EXPECT_EQ(sample_token(logits, {.temperature = 0}, number), 1);
}

TEST(Sampling, follows_the_softmax_of_scaled_logits) {
  for (const double temperature : {0.5, 1.0, 3.0}) {
    double total = 0;
    for (const float logit : logits) total += std::exp(logit / temperature);
    for (const auto& [token, share] : shares({.temperature = temperature}))
      EXPECT_NEAR(share, std::exp(logits[static_cast<std::size_t>(token)] / temperature) / total, 2e-4) << token;
  }
}

TEST(Sampling, top_k_excludes_the_other_tokens) {
  const auto two = shares({.top_k = 2});
  EXPECT_EQ(two.size(), 2U);
  EXPECT_NEAR(two.at(1), 0.5, 1e-3);
  EXPECT_NEAR(two.at(3), 0.5, 1e-3);
  EXPECT_EQ(shares({.top_k = 100}), shares({}));
}

TEST(Sampling, is_valid_for_numbers_near_0_and_1) {
  EXPECT_EQ(sample_token(logits, {}, 0), 0);
  EXPECT_EQ(sample_token(logits, {}, 1 - 0x1p-53), 4);
  EXPECT_EQ(sample_token(logits, {.temperature = 1e-3}, 1 - 0x1p-53), 3) << "a token of no width was chosen";
}

TEST(Sampling, refuses_logits_that_are_not_finite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    EXPECT_TRUE(says(error_text<Failure>([&] { sample_token(std::vector<float>{0, bad}, {}, 0.5); }), "a logit of"));
}

TEST(UniformNumber, is_a_function_of_its_key) {
  std::set<double> seen;
  double sum = 0;
  for (std::uint64_t seed : {0, 1})
    for (std::uint64_t prompt = 0; prompt < 10; ++prompt)
      for (std::uint64_t position = 0; position < 100; ++position) {
        const double number = uniform_number({seed, prompt, position});
        EXPECT_EQ(number, uniform_number({seed, prompt, position}));
        EXPECT_TRUE(number >= 0 && number < 1);
        seen.insert(number);
        sum += number;
      }
  EXPECT_EQ(seen.size(), 2000U);
  EXPECT_NEAR(sum / 2000, 0.5, 0.03);
}

}  // namespace
}  // namespace penstock::test::sampling_test
