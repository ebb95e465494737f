#include "penstock/train/sampling.h"

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

TEST(Sampling, top_p_keeps_the_fewest_tokens_of_that_probability) {
  // Of all tokens: 0.054, 0.3995, 0.147, 0.3995, 0.
  EXPECT_EQ(shares({.top_p = 0.39}).size(), 1U);
  EXPECT_NEAR(shares({.top_p = 0.39}).at(1), 1, 1e-9);
  EXPECT_EQ(shares({.top_p = 0.5}).size(), 2U);
  EXPECT_EQ(shares({.top_p = 0.9}).size(), 3U);
  EXPECT_NEAR(shares({.top_p = 0.9}).at(2), 0.147 / (2 * 0.3995 + 0.147), 1e-3);
  EXPECT_EQ(shares({.top_k = 2, .top_p = 0.99}), shares({.top_k = 2}));
}

TEST(Sampling, repetition_penalty_lowers_tokens_of_the_sequence) {
  const SamplingOptions greedy{.temperature = 0, .repetition_penalty = 1.5};
  EXPECT_EQ(sample_token(logits, greedy, 0), 1);
  EXPECT_EQ(sample_token(logits, greedy, 0, {1, 1, 1}), 3);
  EXPECT_EQ(sample_token(logits, greedy, 0, {1, 3}), 1) << "2 / 1.5 is still above 1";
  EXPECT_EQ(sample_token(std::vector<float>{-1, -1.2F}, greedy, 0, {0}), 1) << "-1 * 1.5 is below -1.2";
}

TEST(Sampling, refuses_options_out_of_range) {
  const auto refusal = [](const SamplingOptions& options) { return error_text<ConfigError>([&] { check(options); }); };
  EXPECT_TRUE(says(refusal({.temperature = -1}), "a temperature of -1"));
  EXPECT_TRUE(says(refusal({.top_k = -1}), "top-k of -1"));
  EXPECT_TRUE(says(refusal({.top_p = 0}), "top-p of 0"));
  EXPECT_TRUE(says(refusal({.top_p = 1.5}), "top-p of 1.5"));
  EXPECT_TRUE(says(refusal({.repetition_penalty = 0}), "penalty of 0"));
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
