// Clipping by the norm of all gradients: the same for every partition, schedule and number of replicas.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/runtime/matrix_jobs.h"
#include "tests/support/expect_same.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::clip_norm_test {
namespace {

struct Clipped : Trained {
  std::vector<double> norms;
  StateDict initial;
};

struct ClippedCase {
  std::string schedule = "1f1b";
  int stages = 1;
  int replicas = 1;
  double clip_norm = 0.5;
  int steps = 3;
};

std::pair<torch::Tensor, torch::Tensor> batch() {
  torch::manual_seed(7);
  return {torch::randn({12, 6}), torch::arange(12) % 4};
}

Clipped train(const ClippedCase& one) {
  PipelineOf<DeepNetwork> pipeline(
      {.stages = one.stages, .replicas = one.replicas},
      {.micro_batches = 4 / one.replicas, .schedule = one.schedule, .clip_norm = one.clip_norm, .seed = 5},
      torch_sgd(1));
  Clipped outcome;
  outcome.initial = pipeline.state_dict();
  const auto [inputs, targets] = batch();
  for (int step = 0; step < one.steps; ++step) {
    const StepResult result = pipeline.train_step(inputs, targets);
    outcome.losses.push_back(result.loss());
    outcome.norms.push_back(result.gradient_norm());
  }
  outcome.state = pipeline.state_dict();
  return outcome;
}

TEST(ClipNorm, is_bitwise_the_same_for_every_partition_and_schedule) {
  const Clipped alone = train({});
  for (const char* schedule : {"gpipe", "zb-h1", "interleaved", "zb-v"})
    for (int stages : {1, 2, 3}) {
      const Clipped other = train({schedule, stages});
      EXPECT_EQ(alone.norms, other.norms) << schedule << " p " << stages;
      expect_same(alone, other, say(schedule, " p ", stages));
    }
}

TEST(ClipNorm, is_the_norm_of_the_sum_over_replicas) {
  const Clipped one = train({"1f1b", 2, 1}), two = train({"1f1b", 2, 2});
  for (std::size_t i = 0; i < one.norms.size(); ++i) EXPECT_NEAR(one.norms[i], two.norms[i], 1e-5 * one.norms[i]);
  expect_close(one.state, two.state, 1e-4);
}

// At a learning rate of 1 a step changes the parameters by the clipped gradient.
TEST(ClipNorm, bounds_the_length_of_a_step) {
  const Clipped run = train({"1f1b", 2, 1, 0.05, 1});
  EXPECT_GT(run.norms[0], 0.05);
  double square = 0;
  for (const auto& [name, value] : run.initial.pairs())
    square += std::pow((value - run.state[name]).norm().item<double>(), 2);
  EXPECT_NEAR(std::sqrt(square), 0.05 * run.norms[0] / (run.norms[0] + 1e-6), 1e-6);
}

TEST(ClipNorm, infinity_measures_and_does_not_change_gradients) {
  const Clipped measured = train({"1f1b", 2, 1, std::numeric_limits<double>::infinity()});
  const Clipped large = train({"1f1b", 2, 1, 1e9});
  EXPECT_EQ(measured.norms, large.norms);
  EXPECT_EQ(measured.losses, large.losses);
  EXPECT_GT(measured.norms[0], 0);
}

/// A layer that makes the gradient of one weight infinite or NaN.
struct Bursting : Cell {
  Layer first = add("first", [] { return torch::nn::Linear(6, 4); });
  Layer last = add("last", [] { return torch::nn::Linear(4, 4); });
  double factor = 1;
  Value forward(Value x) override {
    return last(apply(
        "burst",
        [this](const Tensors& v) {
          torch::Tensor held = v[0] * 1;
          if (held.requires_grad())
            held.register_hook([by = factor](const torch::Tensor& gradient) {
              torch::Tensor changed = gradient.clone();
              changed[0][0] = by;
              return changed;
            });
          return held;
        },
        Values{first(x)}));
  }
};

// As clip_grad_norm_ with error_if_nonfinite = false: a norm of NaN makes every gradient NaN, and an infinite norm
// makes finite gradients zero.
TEST(ClipNorm, of_gradients_that_are_not_finite_equals_torch) {
  for (const double by : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    for (const int stages : {1, 2}) {
      World world({.stages = stages});
      Bursting network, plain;
      network.factor = plain.factor = by;
      Pipeline pipeline(world, network, cross_entropy, {.clip_norm = 0.5, .partition = "uniform"});
      pipeline.optimize_with(torch_sgd(1));
      const auto before = pipeline.state_dict();
      const auto [inputs, targets] = batch();
      pipeline.train_step(inputs, targets).wait();
      const auto after = pipeline.state_dict();

      torch::nn::functional::cross_entropy(plain(Value(inputs)).tensor(), targets).backward();
      torch::nn::utils::clip_grad_norm_(plain.parameters(), 0.5);
      for (const auto& [name, value] : plain.named_parameters()) {
        ASSERT_TRUE(torch::equal(value, before[name])) << name;
        EXPECT_TRUE(torch::allclose(value - value.grad(), after[name], 1e-5, 1e-6, /*equal_nan=*/true))
            << name << " on " << stages << " with " << by << "\n"
            << after[name];
      }
    }
}

struct PhasesImpl : torch::nn::Module {
  torch::Tensor weight = register_parameter("weight", torch::randn({6}, torch::kComplexFloat));
  torch::Tensor forward(const torch::Tensor& x) { return torch::view_as_real(x * weight).flatten(1); }
};
TORCH_MODULE(Phases);

struct Complex : Cell {
  Layer first = add("first", [] { return torch::nn::Linear(6, 6); });
  Layer phases = add("phases", [] { return Phases(); });
  Layer last = add("last", [] { return torch::nn::Linear(12, 4); });
  Value forward(Value x) override { return last(phases(first(x))); }
};

// The norm of a complex gradient is the norm of its real and imaginary parts.
TEST(ClipNorm, of_complex_parameters_equals_a_plain_step) {
  for (const auto& [stages, replicas] : {std::pair{1, 1}, {3, 1}, {2, 2}}) {
    PipelineOf<Complex> pipeline({.stages = stages, .replicas = replicas}, {.clip_norm = 0.1, .partition = "uniform"},
                                 torch_sgd(1));
    auto before = pipeline.state_dict();
    const auto [inputs, targets] = batch();
    const double norm = pipeline.train_step(inputs, targets).gradient_norm();
    const auto after = pipeline.state_dict();

    for (auto& [name, value] : before.pairs()) value.requires_grad_(true);
    const torch::Tensor hidden = torch::linear(inputs, before["first.weight"], before["first.bias"]);
    const torch::Tensor parts = torch::view_as_real(hidden * before["phases.weight"]).flatten(1);
    torch::nn::functional::cross_entropy(torch::linear(parts, before["last.weight"], before["last.bias"]), targets)
        .backward();
    const torch::NoGradGuard no_grad;
    double square = 0;
    for (const auto& [name, value] : before.pairs())
      square += (value.grad() * value.grad().conj()).sum().abs().item<double>();
    EXPECT_NEAR(norm, std::sqrt(square), 1e-5 * norm);
    EXPECT_GT(norm, 0.1);
    for (const auto& [name, value] : before.pairs())
      EXPECT_TRUE(torch::allclose(value - value.grad() * (0.1 / norm), after[name], 1e-4, 1e-6)) << name;
  }
}

TEST(ClipNorm, is_not_computed_unless_requested) {
  PipelineOf<DeepNetwork> pipeline({.stages = 2}, {}, torch_sgd(1));
  const auto [inputs, targets] = batch();
  const StepResult result = pipeline.train_step(inputs, targets);
  EXPECT_THROW(result.gradient_norm(), ConfigError);
  EXPECT_THROW(PipelineOf<DeepNetwork>({.stages = 2}, {.clip_norm = 0}), ConfigError);
}

}  // namespace
}  // namespace penstock::test::clip_norm_test
