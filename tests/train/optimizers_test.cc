// Compares twenty steps with torch::optim on the same parameters and gradients.
#include "penstock/train/optimizers.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::test::optimizers_test {
namespace {

using TensorList = std::vector<torch::Tensor>;

/// A matrix, a vector, a scalar, and a convolution's weight in channels-last order.
TensorList fresh_parameters() {
  torch::manual_seed(1);
  TensorList parameters{torch::randn({17, 5}), torch::randn({33}), torch::randn({}),
                        torch::randn({4, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast)};
  for (torch::Tensor& parameter : parameters) parameter.requires_grad_(true);
  return parameters;
}

std::vector<NamedParameter> named(const TensorList& parameters) {
  std::vector<NamedParameter> all;
  for (std::size_t i = 0; i < parameters.size(); ++i) all.push_back({say("p", i), parameters[i]});
  return all;
}

/// The gradients of one step. The vector has none in the first three steps and in every fifth; the gradient of the
/// matrix has another memory layout than the matrix.
void set_gradients(const TensorList& parameters, int step) {
  torch::manual_seed(100 + static_cast<std::uint64_t>(step));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const torch::Tensor gradient = i == 0 ? torch::randn({5, 17}).t() : torch::randn(parameters[i].sizes());
    const bool absent = i == 1 && (step < 3 || step % 5 == 0);
    parameters[i].mutable_grad() = absent ? torch::Tensor() : gradient;
  }
}

/// 20 steps; the learning rate is halved after the tenth.
void expect_equal(const OptimizerFactory& ours, const OptimizerFactory& theirs_of, double rate) {
  const TensorList mine = fresh_parameters(), theirs = fresh_parameters(), initial = fresh_parameters();
  const auto optimizer = ours(named(mine));
  const auto reference = theirs_of(named(theirs));
  for (int step = 0; step < 20; ++step) {
    set_gradients(mine, step);
    set_gradients(theirs, step);
    if (step == 10) {
      optimizer->set_learning_rate(rate / 2);
      reference->set_learning_rate(rate / 2);
    }
    optimizer->step();
    reference->step();
    EXPECT_TRUE(step >= 3 || torch::equal(mine[1], initial[1])) << "touched without a gradient";
  }
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const double distance = (mine[i] - theirs[i]).norm().item<double>() / theirs[i].norm().item<double>();
    EXPECT_LT(distance, 1e-6) << "parameter " << i;
    EXPECT_FALSE(torch::allclose(mine[i], initial[i])) << "parameter " << i << " never moved";
  }
}

template <class Theirs, class Options>
OptimizerFactory of_torch(const Options& options) {
  return optimizer_factory([options](const TensorList& parameters) { return Theirs(parameters, options); });
}

TEST(Sgd, equals_torch) {
  const auto theirs = [](double rate) { return torch::optim::SGDOptions(rate); };
  struct Case {
    SgdOptions ours;
    torch::optim::SGDOptions theirs;
  };
  for (const auto& [ours, options] : {
           Case{{.learning_rate = 0.1}, theirs(0.1)},
           {{.learning_rate = 0.05, .momentum = 0.9}, theirs(0.05).momentum(0.9)},
           {{.learning_rate = 0.05, .momentum = 0.9, .nesterov = true}, theirs(0.05).momentum(0.9).nesterov(true)},
           {{.learning_rate = 0.05, .weight_decay = 0.1}, theirs(0.05).weight_decay(0.1)},
           {{.learning_rate = 0.05, .momentum = 0.8, .weight_decay = 0.1},
            theirs(0.05).momentum(0.8).weight_decay(0.1)},
       }) {
    SCOPED_TRACE(say("momentum ", ours.momentum, ", nesterov ", ours.nesterov, ", decay ", ours.weight_decay));
    expect_equal(sgd(ours), of_torch<torch::optim::SGD>(options), ours.learning_rate);
  }
}

TEST(Adam, equals_torch) {
  namespace theirs = torch::optim;
  const AdamOptions all{.learning_rate = 0.02, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-4, .weight_decay = 0.1};
  const std::tuple betas(0.8, 0.95);
  expect_equal(adam({.learning_rate = 0.01}), of_torch<theirs::Adam>(theirs::AdamOptions(0.01)), 0.01);
  expect_equal(adam(all), of_torch<theirs::Adam>(theirs::AdamOptions(0.02).betas(betas).eps(1e-4).weight_decay(0.1)),
               0.02);
  expect_equal(adamw({.learning_rate = 0.01}), of_torch<theirs::AdamW>(theirs::AdamWOptions(0.01).weight_decay(0)),
               0.01);
  expect_equal(adamw(all), of_torch<theirs::AdamW>(theirs::AdamWOptions(0.02).betas(betas).eps(1e-4).weight_decay(0.1)),
               0.02);
}

TEST(Optimizers, do_nothing_without_gradients) {
  for (const OptimizerFactory& factory :
       {sgd({.momentum = 0.9, .weight_decay = 0.1}), adam(), adamw({.weight_decay = 0.1})}) {
    const TensorList parameters = fresh_parameters(), initial = fresh_parameters();
    const auto optimizer = factory(named(parameters));
    optimizer->step();
    for (std::size_t i = 0; i < parameters.size(); ++i) EXPECT_TRUE(torch::equal(parameters[i], initial[i]));
  }
}

TEST(Optimizers, refuse_a_parameter_that_is_not_dense) {
  const torch::Tensor column = torch::randn({4, 4}).narrow(1, 0, 1);
  for (const OptimizerFactory& factory : {sgd(), adam(), adamw()}) {
    const std::string text = error_text<ConfigError>([&] { factory({{"fc.weight", column}}); });
    EXPECT_TRUE(says(text, "'fc.weight'", "[4, 1]", "not dense", "make it contiguous")) << text;
  }
}

TEST(Optimizers, refuse_invalid_options) {
  EXPECT_EQ(error_text<ConfigError>([] { sgd({.learning_rate = -0.5}); }),
            "the learning rate is -0.5, but it cannot be below 0");
  EXPECT_TRUE(says(error_text<ConfigError>([] { sgd({.learning_rate = std::nan("")}); }), "the learning rate is nan"));
  EXPECT_EQ(error_text<ConfigError>([] { sgd({.momentum = -1}); }), "the momentum is -1, but it cannot be below 0");
  EXPECT_EQ(error_text<ConfigError>([] { sgd({.weight_decay = -1}); }),
            "the weight decay is -1, but it cannot be below 0");
  EXPECT_EQ(error_text<ConfigError>([] { sgd({.nesterov = true}); }), "nesterov needs a momentum above 0");
  for (auto* make : {&adam, &adamw}) {
    EXPECT_TRUE(says(error_text<ConfigError>([&] { make({.learning_rate = -1}); }), "learning rate is -1"));
    EXPECT_TRUE(says(error_text<ConfigError>([&] { make({.beta1 = 1}); }), "beta is 1", "[0, 1)"));
    EXPECT_TRUE(says(error_text<ConfigError>([&] { make({.beta2 = -0.1}); }), "beta is -0.1", "[0, 1)"));
    EXPECT_TRUE(says(error_text<ConfigError>([&] { make({.epsilon = -1}); }), "epsilon is -1"));
    EXPECT_TRUE(says(error_text<ConfigError>([&] { make({.weight_decay = -1}); }), "weight decay is -1"));
  }
}

TEST(Optimizers, refuse_to_set_a_negative_learning_rate) {
  for (const OptimizerFactory& factory : {sgd(), adam(), adamw()}) {
    const auto optimizer = factory(named(fresh_parameters()));
    EXPECT_TRUE(says(error_text<ConfigError>([&] { optimizer->set_learning_rate(-2); }), "learning rate is -2"));
    EXPECT_NO_THROW(optimizer->set_learning_rate(0));
  }
}

}  // namespace
}  // namespace penstock::test::optimizers_test
