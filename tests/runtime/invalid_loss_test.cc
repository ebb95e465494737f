// A step whose loss is infinite or not a number leaves nothing behind, whatever the schedule, replicas and ties.
#include "penstock/rank/result.h"

#include <atomic>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "penstock/model/random_place.h"
#include "tests/runtime/fragile.h"
#include "tests/runtime/overflowing.h"
#include "tests/support/expect_same.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::invalid_loss_test {
namespace {

struct Case {
  std::string schedule = "1f1b";
  int micro_batches = 4;
  int replicas = 1;

  WorldOptions world() const { return {.stages = 2, .replicas = replicas}; }
  PipelineOptions options() const { return {.micro_batches = micro_batches, .schedule = schedule}; }
  std::string name() const { return say(schedule, ", m ", micro_batches, ", d ", replicas); }
};

/// Two steps, and two after one whose batch is left out.
Trained without_the_batch(const Case& one, bool counts_it = true) {
  OverflowJob job(one.world(), one.options());
  Trained outcome;
  for (const int step : {0, 1, 3, 4}) {
    if (step == 3 && counts_it) job.pipeline.skip_step();
    outcome.losses.push_back(job.step(Samples(step), {}).loss());
  }
  outcome.state = job.pipeline.state_dict();
  return outcome;
}

/// The same with a batch whose row `bad` overflows, which is refused. With `look_ahead` the step behind it is submitted
/// before.
Trained with_the_batch(const Case& one, std::int64_t bad, bool look_ahead) {
  OverflowJob job(one.world(), one.options());
  Trained outcome;
  for (const int step : {0, 1}) outcome.losses.push_back(job.step(Samples(step)).loss());
  const StateDict before = job.pipeline.state_dict();
  const StepResult refused = job.step(Samples(2).spoil(bad));
  std::optional<StepResult> behind;
  if (look_ahead) behind = job.step(Samples(3));
  EXPECT_THROW(refused.loss(), InvalidLoss);
  EXPECT_THROW(refused.wait(), InvalidLoss);
  if (!look_ahead) {
    expect_same(job.pipeline.state_dict(), before);
    behind = job.step(Samples(3));
  }
  outcome.losses.push_back(behind->loss());
  outcome.losses.push_back(job.step(Samples(4)).loss());
  outcome.state = job.pipeline.state_dict();
  job.world.finish();
  return outcome;
}

void expect_nothing_left_behind(const Case& one, std::int64_t bad) {
  const Trained expected = without_the_batch(one);
  for (const bool look_ahead : {false, true}) {
    SCOPED_TRACE(say(one.name(), ", row ", bad, look_ahead ? ", with a step behind" : ""));
    EXPECT_EQ(difference(expected, with_the_batch(one, bad, look_ahead)), "");
  }
}

TEST(InvalidLoss, leaves_nothing_behind_under_any_schedule) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"})
    for (const int micro_batches : {1, 4})
      for (const std::int64_t row : {0, 15}) expect_nothing_left_behind({schedule, micro_batches}, row);
}

TEST(InvalidLoss, leaves_nothing_behind_on_replicas) {
  for (const char* schedule : {"1f1b", "zb-v"})
    for (const std::int64_t row : {0, 15}) expect_nothing_left_behind({schedule, 2, 2}, row);
}

TEST(InvalidLoss, counts_as_a_step_for_random_numbers) {
  EXPECT_NE(without_the_batch({}, true).losses, without_the_batch({}, false).losses);
}

/// Cross entropy, or `value` where a target is 3.
Loss spoiled(double value) {
  Loss loss = cross_entropy;
  loss.name = "spoiled";
  loss.sum = [value](const torch::Tensor& output, const torch::Tensor& target) {
    return cross_entropy.sum(output, target) * (target.eq(3).any().item<bool>() ? value : 1.0);
  };
  return loss;
}

TEST(InvalidLoss, is_infinite_or_not_a_number) {
  for (const double value : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    OverflowJob job({.stages = 2}, {.micro_batches = 4}, spoiled(value));
    Samples samples(0);
    job.step(samples).loss();
    samples.targets[15] = 3;
    EXPECT_THROW(job.step(samples).loss(), InvalidLoss);
    EXPECT_FALSE(std::isfinite(job.step(samples, {}).loss())) << "a program that does not ask for it gets the loss";
  }
}

TEST(InvalidLoss, of_an_evaluation_is_a_number_of_the_result) {
  OverflowJob job({.stages = 2}, {.micro_batches = 4}, spoiled(std::nan("")));
  Samples samples(0);
  samples.targets[15] = 3;
  EXPECT_TRUE(
      std::isnan(job.pipeline.evaluate(samples.inputs, samples.targets, {}, {.refuse_invalid_loss = true}).loss()));
}

/// Three stages, of which the first two have running statistics and, once frozen, wait for no gradients.
struct Frozen : Cell {
  Frozen() {
    a.pipeline_stage = norm_a.pipeline_stage = 0;
    b.pipeline_stage = norm_b.pipeline_stage = 1;
    c.pipeline_stage = 2;
  }
  Layer a = add("a", [] { return torch::nn::Linear(12, 16); });
  Layer norm_a = add("norm_a", [] { return torch::nn::BatchNorm1d(16); });
  Layer b = add("b", [] { return torch::nn::Linear(16, 16); });
  Layer norm_b = add("norm_b", [] { return torch::nn::BatchNorm1d(16); });
  Layer c = add("c", [] { return torch::nn::Linear(16, 4); });
  Value forward(Value x) override { return c(norm_b(b(norm_a(a(x))))); }
};

TEST(InvalidLoss, restores_stages_that_wait_for_no_gradients) {
  PipelineOf<Frozen> pipeline({.stages = 3}, {.micro_batches = 4}, torch_sgd(0.1), spoiled(std::nan("")));
  for (const char* layer : {"a", "norm_a", "b", "norm_b"}) pipeline.freeze(layer);
  const auto step = [&](const Samples& samples, const StepOptions& options) {
    return pipeline.train_step(samples.inputs, samples.targets, options);
  };
  for (int i = 0; i < 20; ++i) {
    step(Samples(i), {.refuse_invalid_loss = true}).loss();
    const StateDict before = pipeline.state_dict();
    Samples samples(100 + i);
    samples.targets[15] = 3;
    EXPECT_THROW(step(samples, {.refuse_invalid_loss = true}).loss(), InvalidLoss);
    expect_same(pipeline.state_dict(), before);
  }
}

/// The first and the last stage have no parameter but their common one.
struct Tied : Cell {
  Tied() {
    a.pipeline_stage = 0;
    b.pipeline_stage = 1;
    c.pipeline_stage = 2;
    c.tie("weight", a, "weight");
  }
  Layer a = add("a", [] { return torch::nn::Linear(torch::nn::LinearOptions(12, 12).bias(false)); });
  Layer b = add("b", [] { return torch::nn::Linear(12, 12); });
  Layer c = add("c", [] { return torch::nn::Linear(torch::nn::LinearOptions(12, 12).bias(false)); });
  Value forward(Value x) override { return c(b(a(x))); }
};

// The ranks of the other replica wait for the sums of the tied parameter.
TEST(InvalidLoss, ends_waits_for_tied_parameters_of_other_replicas) {
  // The norm is measured before the update, where the ranks would learn of the other replica's loss.
  PipelineOf<Tied> pipeline({.stages = 3, .replicas = 2}, {.micro_batches = 2, .clip_norm = 1e9}, torch_sgd(0.1),
                            spoiled(std::nan("")));
  const auto step = [&](const Samples& samples) {
    return pipeline.train_step(samples.inputs, samples.targets, {.refuse_invalid_loss = true}).loss();
  };
  step(Samples(0));
  const StateDict before = pipeline.state_dict();
  for (const std::int64_t row : {15, 7}) {
    Samples samples(1);
    samples.targets[row] = 3;
    EXPECT_THROW(step(samples), InvalidLoss);
    expect_same(pipeline.state_dict(), before);
  }
  EXPECT_GT(step(Samples(2)), 0);
}

TEST(InvalidLoss, ends_the_step_behind_on_request) {
  OverflowJob job({.stages = 2}, {.micro_batches = 4});
  job.step(Samples(0)).loss();
  const StateDict before = job.pipeline.state_dict();
  const StepResult refused = job.step(Samples(1).spoil(15));
  const StepResult behind = job.step(Samples(2), {.refuse_invalid_loss = true, .require_previous = true});
  EXPECT_THROW(refused.loss(), InvalidLoss);
  EXPECT_THROW(behind.loss(), StepFailure);
  expect_same(job.pipeline.state_dict(), before);
  job.step(Samples(3)).loss();
  EXPECT_GT(job.step(Samples(4), {.refuse_invalid_loss = true, .require_previous = true}).loss(), 0);
  job.world.finish();
}

TEST(InvalidLoss, a_layer_that_throws_is_no_invalid_loss) {
  std::atomic<int> forwards{0};
  Fragile network([&](bool is_forward) {
    if (is_forward && ++forwards == 3) throw std::runtime_error("the layer broke");
  });
  World world({.stages = 3});
  Pipeline pipeline(world, network, cross_entropy, {.micro_batches = 4});
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  const Samples samples(0);
  const StepResult broken = pipeline.train_step(samples.inputs, samples.targets, {.refuse_invalid_loss = true});
  try {
    broken.loss();
    FAIL();
  } catch (const InvalidLoss& error) {
    FAIL() << error.what();
  } catch (const StepFailure& error) {
    EXPECT_EQ(std::string(error.what()), "rank 1 (stage 1) failed at 1F2 of step 0: the layer broke");
  }
  EXPECT_GT(pipeline.train_step(samples.inputs, samples.targets, {.refuse_invalid_loss = true}).loss(), 0);
}

// Each rank may know of one of the causes alone; none waits for a search that others do not join.
TEST(InvalidLoss, beside_a_layer_that_throws_ends_the_step_too) {
  std::atomic<bool> is_broken{false};
  Fragile network([&](bool is_forward) {
    if (is_forward && is_broken && RandomPlace::current()->first_sample >= 8) throw std::runtime_error("it broke");
  });
  World world({.stages = 3, .replicas = 2});
  // Replica 0 computes an invalid loss, and replica 1 breaks.
  Pipeline pipeline(world, network, spoiled(std::nan("")), {.micro_batches = 2});
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  for (int i = 0; i < 50; ++i) {
    Samples samples(i);
    samples.targets[0] = 3;
    is_broken = i % 2 == 1;
    const StepResult result = pipeline.train_step(samples.inputs, samples.targets, {.refuse_invalid_loss = true});
    EXPECT_THROW(result.wait(), StepFailure);
  }
  is_broken = false;
  const Samples samples(0);
  EXPECT_GT(pipeline.train_step(samples.inputs, samples.targets, {.refuse_invalid_loss = true}).loss(), 0);
}

// fp16: an update that a gradient prevents is still skipped, and no step is refused for it.
TEST(InvalidLoss, a_gradient_that_is_not_finite_is_left_to_the_loss_scale) {
  OverflowJob job({.stages = 2}, {.micro_batches = 4, .precision = Precision::fp16});
  std::atomic<bool> spoils{false};
  job.pipeline.add_gradient_hook(
      [&](const std::string&, const torch::Tensor& gradient) { return spoils ? gradient / 0 : torch::Tensor(); });
  EXPECT_FALSE(job.step(Samples(0)).update_skipped());
  spoils = true;
  EXPECT_TRUE(job.step(Samples(1)).update_skipped());
  spoils = false;
  EXPECT_FALSE(job.step(Samples(2)).update_skipped());
}

}  // namespace
}  // namespace penstock::test::invalid_loss_test
