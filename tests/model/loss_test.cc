// Losses as sum and weight: sum / weight equals torch's mean for any split into micro-batches.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/model/loss.h"
#include "tests/base/error_text.h"

namespace penstock::test::loss_test {
namespace {

namespace F = torch::nn::functional;

double mean(const Loss& loss, const torch::Tensor& output, const torch::Tensor& target) {
  return loss.sum(output, target).item<double>() / loss.weight(target);
}

/// The mean computed from two micro-batches, rows [0, partition) and [partition, n).
double mean_of_two(const Loss& loss, const torch::Tensor& output, const torch::Tensor& target, std::int64_t partition) {
  double sum = 0, weight = 0;
  for (const auto& [begin, end] : {std::pair{std::int64_t{0}, partition}, std::pair{partition, output.size(0)}}) {
    sum += loss.sum(output.slice(0, begin, end), target.slice(0, begin, end)).item<double>();
    weight += loss.weight(target.slice(0, begin, end));
  }
  return sum / weight;
}

/// The mean, whole and of two micro-batches, is `expected`, a scalar.
void expect_mean(const Loss& loss, const torch::Tensor& output, const torch::Tensor& target, std::int64_t partition,
                 const torch::Tensor& expected) {
  EXPECT_NEAR(mean(loss, output, target), expected.item<double>(), 1e-6);
  EXPECT_NEAR(mean_of_two(loss, output, target, partition), expected.item<double>(), 1e-6);
}

TEST(CrossEntropy, equals_torch) {
  torch::manual_seed(1);
  const torch::Tensor output = torch::randn({7, 5}), target = torch::randint(0, 5, {7}, torch::kInt64);
  EXPECT_EQ(cross_entropy.weight(target), 7);
  expect_mean(cross_entropy, output, target, 3, F::cross_entropy(output, target));
  EXPECT_EQ(cross_entropy.sum(output, target).dim(), 0);
}

TEST(CrossEntropy, targets_of_minus_100_do_not_count) {
  torch::manual_seed(2);
  const torch::Tensor output = torch::randn({6, 5, 4});  // [n, classes, positions]
  torch::Tensor target = torch::randint(0, 5, {6, 4}, torch::kInt64);
  target[0].fill_(-100);
  target[3][2] = -100;
  EXPECT_EQ(cross_entropy.weight(target), 19);
  expect_mean(cross_entropy, output, target, 1, F::cross_entropy(output, target));  // the first part has weight 0
}

TEST(CrossEntropy, refuses_what_are_no_class_numbers) {
  const torch::Tensor output = torch::randn({3, 5, 2}), target = torch::zeros({3, 2}, torch::kInt64);
  EXPECT_EQ(error_text<ConfigError>([&] { cross_entropy({output}, target.to(torch::kFloat)); }),
            "cross_entropy takes targets of type int64, class numbers, and these are float of shape [3, 2]: convert "
            "them, target.to(torch::kInt64)");
  target[0][1] = -100;
  target[2][1] = 5;
  EXPECT_EQ(error_text<ConfigError>([&] { cross_entropy({output}, target); }),
            "cross_entropy: the target 5 at [2, 1] is not one of the output's 5 classes: pass 0 to 4, or -100 for "
            "elements that do not count");
  target[2][1] = -1;
  EXPECT_TRUE(says(error_text<ConfigError>([&] {
                     next_token_loss({torch::randn({3, 2, 7})}, target);
                   }),
                   "next_token_loss: the target -1 at [2, 1] is not one of the output's 7 classes"));
}

TEST(CrossEntropy, is_zero_if_all_targets_are_ignored) {
  const torch::Tensor output = torch::randn({3, 5}).requires_grad_(true);
  const torch::Tensor target = torch::full({3}, -100, torch::kInt64);
  EXPECT_EQ(cross_entropy.weight(target), 0);
  const torch::Tensor sum = cross_entropy.sum(output, target);
  EXPECT_EQ(sum.item<double>(), 0);
  sum.backward();
  EXPECT_TRUE(torch::equal(output.grad(), torch::zeros({3, 5})));
}

TEST(NextTokenLoss, is_the_cross_entropy_of_every_position) {
  torch::manual_seed(3);
  const torch::Tensor output = torch::randn({4, 6, 5});  // [n, positions, tokens]
  torch::Tensor target = torch::randint(0, 5, {4, 6}, torch::kInt64);
  target[0].fill_(-100);
  EXPECT_EQ(next_token_loss.weight(target), 18);
  expect_mean(next_token_loss, output, target, 1, F::cross_entropy(output.transpose(1, 2), target));
  EXPECT_EQ(next_token_loss.class_dimension, 2);
  EXPECT_EQ(error_text<ConfigError>([&] { next_token_loss.sum(output, target.flatten()); }),
            "next_token_loss compares logits of [4, 6, 5] with targets of [24]: pass [n, T, V] and [n, T]");
}

/// The gradient of `states` through logits that only the graph keeps, or also `kept`.
torch::Tensor gradient_of_logits(const Loss& loss, const torch::Tensor& states, const torch::Tensor& target,
                                 torch::Tensor* kept = nullptr) {
  const torch::Tensor leaf = states.detach().requires_grad_();
  torch::Tensor sum;
  {
    const torch::Tensor logits = leaf * 3;
    sum = loss.sum(logits, target);
    if (kept) *kept = logits;
  }
  return torch::autograd::grad({sum * 0.25}, {leaf}).front();
}

TEST(CrossEntropy, has_the_same_bits_for_large_logits) {
  torch::manual_seed(8);
  const torch::Tensor states = torch::randn({70, 40'000});
  torch::Tensor target = torch::randint(0, 40'000, {70}, torch::kInt64);
  target.narrow(0, 30, 5).fill_(-100);
  const Loss plain{"plain", [](const torch::Tensor& output, const torch::Tensor& targets) {
                     return F::cross_entropy(output, targets, F::CrossEntropyFuncOptions().reduction(torch::kSum));
                   }};
  EXPECT_EQ(cross_entropy.sum(states, target).item<float>(), plain.sum(states, target).item<float>());
  const torch::Tensor expected = gradient_of_logits(plain, states, target);
  EXPECT_TRUE(torch::equal(gradient_of_logits(cross_entropy, states, target), expected));
  torch::Tensor logits;
  EXPECT_TRUE(torch::equal(gradient_of_logits(cross_entropy, states, target, &logits), expected));
  EXPECT_TRUE(torch::equal(logits, states * 3));
  EXPECT_TRUE(says(error_text<ConfigError>([&] { cross_entropy.sum(states, target + 40'000); }),
                   "is not one of the output's 40000 classes: pass 0 to 39999"));

  const torch::Tensor leaf = states.detach().requires_grad_(), changed = leaf * 3;
  const torch::Tensor sum = cross_entropy.sum(changed, target);
  changed.detach().zero_();
  EXPECT_TRUE(says(error_text<ScheduleError>([&] { sum.backward(); }), "were changed in place"));
}

TEST(SquaredError, equals_torch) {
  torch::manual_seed(3);
  const torch::Tensor output = torch::randn({7, 3}), target = torch::randn({7, 3});
  EXPECT_EQ(squared_error.weight(target), 21);
  expect_mean(squared_error, output, target, 2, F::mse_loss(output, target));
  const std::string text = error_text<ConfigError>([] { squared_error.sum(torch::randn({4, 1}), torch::randn({4})); });
  EXPECT_EQ(text, "squared_error compares an output of [4, 1] with a target of [4]: pass tensors of one shape");
}

TEST(MeanLoss, equals_torch_s_mean_for_any_micro_batches) {
  torch::manual_seed(5);
  const torch::Tensor output = torch::randn({7, 3}, torch::requires_grad()), target = torch::randn({7, 3});
  const Loss loss =
      mean_loss("mse", [](const torch::Tensor& o, const torch::Tensor& t) { return torch::mse_loss(o, t); });
  EXPECT_EQ(loss.name, "mse");
  EXPECT_FALSE(loss.weight) << "samples count";
  const double expected = torch::mse_loss(output, target).item<double>();
  EXPECT_NEAR(loss.sum(output, target).item<double>() / 7, expected, 1e-6);
  const double two = loss.sum(output.narrow(0, 0, 2), target.narrow(0, 0, 2)).item<double>();
  const double five = loss.sum(output.narrow(0, 2, 5), target.narrow(0, 2, 5)).item<double>();
  EXPECT_NEAR((two + five) / 7, expected, 1e-6);
  const Loss alone = mean_loss("alone", [](const torch::Tensor& o) { return o.mean(); });
  EXPECT_NEAR(alone.sum(std::vector<torch::Tensor>{output}, {}).item<double>(), 7 * output.mean().item<double>(), 1e-5);
}

TEST(MeanLoss, uses_the_given_weight) {
  torch::manual_seed(6);
  const torch::Tensor output = torch::randn({6, 4}, torch::requires_grad());
  const torch::Tensor target = torch::tensor({1, -100, 3, 0, -100, -100}, torch::kInt64);
  const Loss loss = mean_loss(
      "masked", [](const torch::Tensor& o, const torch::Tensor& t) { return F::cross_entropy(o, t); },
      [](const torch::Tensor& t) { return static_cast<double>(t.ne(-100).sum().item<std::int64_t>()); });
  expect_mean(loss, output, target, 3, F::cross_entropy(output, target));
  const torch::Tensor nothing = loss.sum(output.narrow(0, 4, 2), target.narrow(0, 4, 2));
  nothing.backward();
  EXPECT_EQ(nothing.item<double>(), 0) << "no mean of nothing";
  EXPECT_FALSE(output.grad().isnan().any().item<bool>());
}

TEST(LossFunctions, are_checked) {
  EXPECT_TRUE(says(error_text<ConfigError>([] { mean_loss("none", {}); }), "'none'", "no function"));
  const Loss vector = mean_loss("rows", [](const torch::Tensor& o, const torch::Tensor&) { return o.sum(1); });
  const torch::Tensor output = torch::ones({4, 2}), target = torch::ones({4});
  EXPECT_TRUE(says(error_text<ConfigError>([&] { vector.sum(output, target); }), "'rows'", "[4]", "scalar"));
  EXPECT_TRUE(says(error_text<ConfigError>([] { complete(Loss{}); }), "no function", "Loss::sum"));
}

}  // namespace
}  // namespace penstock::test::loss_test
