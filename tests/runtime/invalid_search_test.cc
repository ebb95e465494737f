// The value that a refused step names.
#include <atomic>
#include <cmath>

#include <gtest/gtest.h>

#include "penstock/rank/result.h"
#include "tests/runtime/overflowing.h"
#include "tests/support/expect_same.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::invalid_search_test {
namespace {

const StepOptions refusing{.refuse_invalid_loss = true};

struct Refusal {
  InvalidStep where;
  std::string text;
};

Refusal refusal_of(const StepResult& result) {
  try {
    result.loss();
  } catch (const InvalidLoss& error) {
    return {error.where(), error.what()};
  }
  ADD_FAILURE() << "the step was not refused";
  return {};
}

void expect_ends_with(const std::string& text, const std::string& end) {
  EXPECT_TRUE(text.ends_with(end)) << text << "\n" << end;
}

TEST(InvalidSearch, names_the_first_function_or_layer_of_the_last_stage) {
  for (const int micro_batches : {1, 4}) {
    OverflowJob job({.stages = 1}, {.micro_batches = micro_batches, .schedule = "1f1b"});
    job.step(Samples(0)).loss();
    const Refusal refusal = refusal_of(job.step(Samples(1).spoil(15)));
    EXPECT_EQ(
        refusal.text,
        say("the loss of training step 1 is nan in micro-batch ", micro_batches - 1, " (stage 0): the output of ",
            "function 'square' (stage 0) is infinite, and the output of layer 'norm' (stage 0) is the first that ",
            "is not a number"));
    EXPECT_EQ(refusal.where.step, 1U);
    EXPECT_EQ(refusal.where.micro_batch, micro_batches - 1);
    EXPECT_TRUE(std::isnan(refusal.where.loss));
    EXPECT_FALSE(refusal.where.spoiled_by);
  }
  OverflowJob job({.stages = 2}, {.micro_batches = 4});
  auto state = job.pipeline.state_dict();
  state["c.weight"].fill_(3e38);
  job.pipeline.load_state_dict(state);
  // The product overflows to an infinity, of which the normalisation makes a NaN, or to a NaN at once: that depends on
  // the order in which the processor's kernels add.
  const std::string text = refusal_of(job.step(Samples(0))).text;
  const std::string c = "in micro-batch 0 (stage 1): the output of layer 'c' (stage 1) ";
  EXPECT_TRUE(
      text.ends_with(c + "is not finite, though its inputs and parameters are") ||
      text.ends_with(c + "is infinite, and the output of layer 'norm_c' (stage 1) is the first that is not a number"))
      << text;
}

TEST(InvalidSearch, names_what_the_last_stage_receives) {
  for (const char* schedule : {"1f1b", "gpipe", "zb-h1"}) {
    OverflowJob job({.stages = 2}, {.micro_batches = 4, .schedule = schedule});
    job.step(Samples(0)).loss();
    const auto before = job.pipeline.state_dict();
    const Refusal refusal = refusal_of(job.step(Samples(1).spoil(11)));
    EXPECT_TRUE(
        refusal.text.starts_with("the loss of training step 1 is nan in micro-batch 2 (stage 1): the output of '"))
        << refusal.text;
    expect_ends_with(refusal.text, "' (stage 0), which stage 1 receives, is not finite");
    expect_same(job.pipeline.state_dict(), before);
  }
}

TEST(InvalidSearch, names_the_replica) {
  OverflowJob job({.stages = 2, .replicas = 2}, {.micro_batches = 2});
  const Refusal refusal = refusal_of(job.step(Samples(0).spoil(15)));
  EXPECT_TRUE(refusal.text.starts_with("the loss of training step 0 is nan in micro-batch 1 of replica 1 (stage 1): "))
      << refusal.text;
  // Either of two replicas with such a loss may be named.
  for (int i = 0; i < 20; ++i) EXPECT_EQ(refusal_of(job.step(Samples(1).spoil(15).spoil(7))).where.micro_batch, 1);
}

TEST(InvalidSearch, names_an_input) {
  OverflowJob job({.stages = 2}, {.micro_batches = 4});
  Samples samples(0);
  samples.inputs[5][3] = std::nan("");
  const Refusal refusal = refusal_of(job.step(samples));
  EXPECT_EQ(refusal.text,
            "the loss of training step 0 is nan in micro-batch 1 (stage 1): input 0 of the batch is not finite");
}

TEST(InvalidSearch, names_a_parameter_and_the_update_before) {
  OverflowJob job({.stages = 2}, {.micro_batches = 4});
  std::atomic<bool> spoils{false};
  job.pipeline.add_gradient_hook([&](const std::string& name, const torch::Tensor& gradient) {
    return spoils && name == "c.weight" ? gradient * std::nan("") : torch::Tensor();
  });
  job.step(Samples(0)).wait();  // until the hooks have run
  spoils = true;
  const StepResult spoiling = job.step(Samples(1));
  spoiling.wait();
  EXPECT_TRUE(std::isfinite(spoiling.loss()));
  spoils = false;
  const std::string cause =
      "parameter 'c.weight' (stage 1) is not finite since the update of training step 1 at the latest";
  Refusal refusal = refusal_of(job.step(Samples(2)));
  EXPECT_EQ(refusal.text, "the loss of training step 2 is nan in micro-batch 0 (stage 1): " + cause);
  EXPECT_EQ(refusal.where.spoiled_by, 1U);
  expect_ends_with(refusal_of(job.step(Samples(3))).text, cause);
  // Loading the same values is what the program has done last.
  job.pipeline.load_state_dict(job.pipeline.state_dict());
  expect_ends_with(refusal_of(job.step(Samples(4))).text,
                   "parameter 'c.weight' (stage 1) is not finite, and no update has changed it");
}

TEST(InvalidSearch, names_the_loss_where_its_arguments_are_finite) {
  Loss loss = cross_entropy;
  loss.name = "spoiled";
  loss.sum = [](const torch::Tensor& output, const torch::Tensor& target) {
    return cross_entropy.sum(output, target) * (target.eq(3).any().item<bool>() ? std::nan("") : 1.0);
  };
  OverflowJob job({.stages = 2}, {.micro_batches = 4}, loss);
  Samples samples(0);
  samples.targets[15] = 3;
  EXPECT_EQ(
      refusal_of(job.step(samples)).text,
      "the loss of training step 0 is nan in micro-batch 3 (stage 1): the loss ('spoiled') is not finite, though its "
      "arguments are");
}

TEST(InvalidSearch, names_a_target) {
  OverflowJob job({.stages = 2}, {.micro_batches = 4}, squared_error);
  torch::Tensor targets = torch::zeros({16, 4});
  targets[9] = std::nan("");
  expect_ends_with(refusal_of(job.pipeline.train_step(Samples(0).inputs, targets, refusing)).text,
                   "in micro-batch 2 (stage 1): target 0 of the batch is not finite");
}

/// A mask of -inf, which is no error, and a root of negative numbers, which is one.
struct Masked : Cell {
  Layer a = add("a", [] { return torch::nn::Linear(12, 4); });
  Layer b = add("b", [] { return torch::nn::Linear(4, 4); });
  Value forward(Value x) override {
    x = a(x);
    const Value mask = apply(
        "mask", [](const Tensors& t) { return t[0].masked_fill(t[0] < 0, -INFINITY); }, Values{x});
    const Value root = apply(
        "root", [](const Tensors& t) { return torch::sqrt(t[0] + 100); }, Values{x});
    return b(apply(
                 "exp", [](const Tensors& t) { return torch::exp(t[0]); }, Values{mask}) +
             root);
  }
};

TEST(InvalidSearch, names_the_first_nan_beside_infinite_numbers) {
  PipelineOf<Masked> pipeline({.stages = 1}, {.micro_batches = 2, .partition = "uniform", .seed = 3}, torch_sgd(0.01));
  Samples samples(0);
  EXPECT_GT(pipeline.train_step(samples.inputs, samples.targets, refusing).loss(), 0) << "the mask alone";
  samples.inputs[0].fill_(-3000);
  samples.inputs[1].fill_(3000);
  expect_ends_with(
      refusal_of(pipeline.train_step(samples.inputs, samples.targets, refusing)).text,
      "the output of function 'mask' (stage 0) is infinite, and the output of function 'root' (stage 0) is "
      "the first that is not a number");
}

/// Gives a NaN once.
struct Forgetful : Cell {
  Layer a = add("a", [] { return torch::nn::Linear(12, 4); });
  Value forward(Value x) override {
    const auto once = [used = used](const Tensors& t) { return used->exchange(true) ? t[0] * 1 : t[0] * NAN; };
    return apply("once", once, Values{a(x)});
  }
  std::shared_ptr<std::atomic<bool>> used = std::make_shared<std::atomic<bool>>(false);
};

TEST(InvalidSearch, says_where_nothing_is_found) {
  PipelineOf<Forgetful> pipeline({.stages = 1}, {.micro_batches = 2}, torch_sgd(0.01));
  const Samples samples(0);
  const Refusal refusal = refusal_of(pipeline.train_step(samples.inputs, samples.targets, refusing));
  EXPECT_NE(refusal.text.find("no layer can be named"), std::string::npos) << refusal.text;
}

/// A layer that refuses to see a batch twice.
struct Once : Cell {
  Layer a = add("a", [] { return torch::nn::Linear(12, 16); });
  Layer norm = add("norm", [] { return torch::nn::BatchNorm1d(16); });
  Layer b = add("b", [] { return torch::nn::Linear(16, 4); });
  Value forward(Value x) override {
    const auto once = [calls = calls](const Tensors& t) {
      if (++*calls > 2) throw std::runtime_error("the layer broke");
      return t[0] * 1;
    };
    return apply("once", once, Values{b(norm(a(x)))});
  }
  std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);
};

TEST(InvalidSearch, that_fails_itself_leaves_the_pipeline_usable) {
  World world({.stages = 2});
  Once network;
  Pipeline pipeline(world, network, cross_entropy, {.micro_batches = 2, .partition = "uniform"});
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.01); });
  const auto before = pipeline.state_dict();
  Samples samples(0);
  samples.inputs[15].fill_(3e38);
  const Refusal refusal = refusal_of(pipeline.train_step(samples.inputs, samples.targets, refusing));
  EXPECT_NE(refusal.text.find("a second forward pass failed (the layer broke)"), std::string::npos) << refusal.text;
  expect_same(pipeline.state_dict(), before);
  *network.calls = -100;
  EXPECT_GT(pipeline.train_step(Samples(1).inputs, Samples(1).targets, refusing).loss(), 0);
}

// Recomputed calls and tuned kernels run as they do in the step.
TEST(InvalidSearch, finds_it_with_recompute) {
  OverflowJob job({.stages = 1}, {.micro_batches = 4, .recompute = true});
  job.step(Samples(0)).loss();
  const auto before = job.pipeline.state_dict();
  EXPECT_NE(refusal_of(job.step(Samples(1).spoil(7))).text.find("function 'square'"), std::string::npos);
  expect_same(job.pipeline.state_dict(), before);
  EXPECT_GT(job.step(Samples(2)).loss(), 0);
}

}  // namespace
}  // namespace penstock::test::invalid_search_test
