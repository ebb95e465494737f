// A step in parts equals the whole step.
#include <gtest/gtest.h>

#include "tests/base/error_text.h"
#include "tests/runtime/matrix_jobs.h"
#include "tests/support/expect_same.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::parts_test {
namespace {

struct PartsCase {
  int stages = 1;
  int replicas = 1;
  std::optional<double> clip_norm = std::nullopt;
};

struct Job : PipelineOf<DeepNetwork> {
  explicit Job(const PartsCase& one)
      : PipelineOf({.stages = one.stages, .replicas = one.replicas},
                   {.micro_batches = 3, .clip_norm = one.clip_norm, .seed = 5}, torch_sgd(0.5)) {
    torch::manual_seed(7);
    inputs = torch::randn({11, 6});
    targets = torch::arange(11) % 4;
  }
  torch::Tensor inputs, targets;
};

TEST(Parts, equal_the_whole_step) {
  for (const PartsCase& one : {PartsCase{}, {3}, {2, 2}, {2, 1, 0.01}, {2, 2, 0.01}}) {
    Job whole(one), parts(one);
    for (int step = 0; step < 3; ++step) {
      const double loss = whole.train_step(whole.inputs, whole.targets).loss();
      const StepResult result = parts.forward_backward(parts.inputs, parts.targets);
      EXPECT_EQ(loss, result.loss());
      if (step != 1) parts.reduce_gradients();  // step() does it where it was left out
      parts.step();
    }
    expect_same(whole.state_dict(), parts.state_dict());
  }
}

TEST(Parts, return_gradients_by_name_and_divide_them) {
  Job plain({3}), scaled({3});
  plain.forward_backward(plain.inputs, plain.targets);
  plain.reduce_gradients();
  scaled.forward_backward(scaled.inputs, scaled.targets);
  scaled.reduce_gradients(4);
  const auto gradients = plain.local_gradients(), quarter = scaled.local_gradients();
  ASSERT_EQ(gradients.size(), plain.state_dict().size());
  for (const auto& [name, gradient] : gradients.pairs()) EXPECT_TRUE(gradient.equal(quarter[name] * 4)) << name;
  EXPECT_GT(gradients["first.weight"].norm().item<double>(), 0);
}

struct Twice : Cell {
  Layer in = add("in", [] { return torch::nn::Linear(6, 8); });
  Layer twice = add("twice", [] { return torch::nn::Linear(8, 8); });
  Layer out = add("out", [] { return torch::nn::Linear(8, 4); });
  Value forward(Value x) override { return out(twice(relu(twice(relu(in(x)))))); }
};

TEST(Parts, are_not_changed_by_reading_gradients) {
  torch::manual_seed(7);
  const torch::Tensor inputs = torch::randn({8, 6}), targets = torch::arange(8) % 4;
  StateDict trained[2];
  for (const bool looks : {false, true}) {
    PipelineOf<Twice> pipeline({.stages = 1, .replicas = 2}, {.micro_batches = 2, .clip_norm = 0.1}, torch_sgd(0.5));
    const StepResult result = pipeline.forward_backward(inputs, targets);
    if (looks) {
      EXPECT_TRUE(pipeline.local_gradients().contains("twice.weight"));
    }
    pipeline.step();
    EXPECT_GT(result.gradient_norm(), 0.1);
    trained[looks] = pipeline.state_dict();
  }
  expect_same(trained[false], trained[true]);
}

TEST(Parts, keep_their_gradients_during_an_evaluation) {
  Job undisturbed({2}), evaluated({2});
  for (Job* job : {&undisturbed, &evaluated}) {
    job->forward_backward(job->inputs, job->targets);
    if (job == &evaluated) job->evaluate(job->inputs, job->targets).wait();
    job->step();
  }
  expect_same(undisturbed.state_dict(), evaluated.state_dict());
}

TEST(Parts, in_another_order_are_an_error) {
  Job job({2});
  EXPECT_THROW(job.step(), ConfigError);
  EXPECT_THROW(job.reduce_gradients(), ConfigError);
  EXPECT_THROW(job.local_gradients(), ConfigError);
  job.forward_backward(job.inputs, job.targets);
  EXPECT_THROW(job.train_step(job.inputs, job.targets), ConfigError);
  EXPECT_THROW(job.reduce_gradients(0), ConfigError);
  job.reduce_gradients();
  EXPECT_THROW(job.reduce_gradients(), ConfigError);
  EXPECT_THROW(job.forward_backward(job.inputs, job.targets), ConfigError);
  job.step();
}

TEST(Parts, report_the_norm_before_clipping) {
  Job whole({2, 1, 0.01});
  const double norm = whole.train_step(whole.inputs, whole.targets).gradient_norm();
  EXPECT_GT(norm, 0.01);
}

TEST(BoundaryShape, is_compared_with_every_boundary_value) {
  PipelineOf<DeepNetwork> pipeline({.stages = 2}, {.micro_batches = 2, .boundary_shape = {{6, 10}}}, torch_sgd(0.5));
  pipeline.train_step(torch::randn({12, 6}), torch::arange(12) % 4).wait();
  const std::string what = test::error_text<RankFailure>([&] {
    pipeline.train_step(torch::randn({11, 6}), torch::arange(11) % 4).wait();
  });
  EXPECT_NE(what.find("of shape [5, 10] to stage 1, but the boundary shape is [6, 10]"), std::string::npos) << what;
}

}  // namespace
}  // namespace penstock::test::parts_test
