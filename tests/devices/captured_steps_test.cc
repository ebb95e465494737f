// Captured steps (PipelineOptions::capture_steps): trainings by graphs of the test device have the bits of the CPU.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/DeviceGuard.h>

#include "penstock/transport/device_hand_over.h"
#include "tests/devices/joined_here.h"
#include "tests/devices/joined_jobs.h"
#include "tests/runtime/deep_job.h"
#include "tests/runtime/u_job.h"
#include "tests/support/stream_groups.h"
#include "tests/support/test_device.h"

namespace penstock::test::captured_steps_test {
namespace {

class CapturedSteps : public testing::Test {
 protected:
  void SetUp() override { stream_order().take_violations(); }
  void TearDown() override { EXPECT_EQ(stream_order().take_violations(), std::vector<std::string>{}); }
};

/// The third step of 11 samples and the third of 6 are captured, and replayed from then on.
const std::vector<std::int64_t> batches{11, 11, 11, 6, 11, 6, 6, 6, 11};

std::map<WeightGradients, UOutcome> on_the_cpu(int replicas, int micro_batches) {
  World world({.stages = 1, .replicas = replicas});
  std::map<WeightGradients, UOutcome> alone;
  for (const auto mode : {WeightGradients::stream, WeightGradients::fused}) {
    UCase one{"gpipe", 1, 1, micro_batches, mode};
    one.batches = batches;
    alone[mode] = run_u_job(world, one);
  }
  return alone;
}

/// Skips, ties, running statistics, recompute and dropout under every schedule.
void compare_captured(World& world, int replicas, int micro_batches) {
  const auto expected = on_the_cpu(replicas, micro_batches);
  int cases = 0;
  for (UCase one : u_cases(world.stages())) {
    if (one.micro_batches != micro_batches) continue;
    one.device = "test";
    one.static_shapes = world.size() > 1;
    one.capture_steps = true;
    one.refuses_invalid_loss = micro_batches == 2;
    one.batches = batches;
    ++cases;
    const UOutcome got = run_u_job(world, one);
    ASSERT_EQ(difference(expected.at(one.weight_gradients), got), "") << one.name();
    ASSERT_EQ(got.captured, 5) << one.name();
  }
  EXPECT_GT(cases, 5);
  std::cout << cases << " cases, each with " << batches.size() << " steps\n";
}

TEST_F(CapturedSteps, of_one_rank_equal_the_cpu_under_every_schedule) {
  World world({.stages = 1});
  compare_captured(world, 1, 5);
}

TEST_F(CapturedSteps, of_two_ranks_equal_the_cpu_under_every_schedule) {
  JoinedWorld joined({.stages = 2}, stream_groups());
  compare_captured(joined.world, 1, 5);
}

TEST_F(CapturedSteps, of_three_ranks_equal_the_cpu_under_every_schedule) {
  JoinedWorld joined({.stages = 3}, stream_groups());
  compare_captured(joined.world, 1, 2);
}

TEST_F(CapturedSteps, of_replicas_equal_the_cpu_under_every_schedule) {
  JoinedWorld joined({.stages = 2, .replicas = 2}, stream_groups());
  compare_captured(joined.world, 2, 2);
}

TEST_F(CapturedSteps, of_whatever_else_a_program_does_equal_others) {
  // In bf16 a layer converts its weights once for all micro-batches of a step.
  const auto require_equal = [](World& executed, World& captured, bool static_shapes) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      const auto expected = state_after_whatever_else(executed, {.precision = precision});
      const auto got = state_after_whatever_else(
          captured, {.static_shapes = static_shapes, .capture_steps = true, .precision = precision});
      for (const auto& [name, tensor] : expected) EXPECT_TRUE(torch::equal(tensor, got.at(name))) << name;
    }
  };
  World alone({.stages = 1});
  require_equal(alone, alone, false);
  JoinedWorld executed({.stages = 2}, stream_groups()), captured({.stages = 2}, stream_groups());
  require_equal(executed.world, captured.world, true);
}

/// Trains `network` with every kind of step, and compares captured with executed ones.
void compare_network(Cell& network, const Loss& loss, const torch::Tensor& inputs, const torch::Tensor& targets) {
  World world({.stages = 1});
  const auto train = [&](bool capture_steps) {
    Pipeline pipeline(world, network, loss, {.micro_batches = 2, .capture_steps = capture_steps, .device = "test"});
    pipeline.optimize_with(adam());
    for (int step = 0; step < 5; ++step) pipeline.train_step(inputs, targets).wait();
    return pipeline.state();
  };
  const auto executed = train(false), captured = train(true);
  for (const auto& [name, value] : executed) EXPECT_TRUE(torch::equal(value, captured.at(name))) << name;
}

TEST_F(CapturedSteps, of_the_networks_of_the_zoo_equal_others) {
  torch::manual_seed(5);
  Mlp mlp({.inputs = 12, .hidden = {16, 16}, .dropout = 0.2});
  compare_network(mlp, cross_entropy, torch::randn({6, 12}), torch::arange(6));
  Gpt gpt({.vocabulary = 11, .context = 8, .width = 16, .layers = 2, .heads = 2});
  compare_network(gpt, next_token_loss, torch::randint(0, 11, {4, 8}), torch::randint(0, 11, {4, 8}));
  Resnet resnet({.depth = 18, .classes = 4, .stem = ResnetStem::cifar, .width = 4});
  compare_network(resnet, cross_entropy, torch::randn({4, 3, 16, 16}), torch::arange(4));
  Unet unet({.width = 4, .levels = 2});
  compare_network(unet, squared_error, torch::randn({4, 3, 8, 8}), torch::randn({4, 3, 8, 8}));
}

/// Counts the calls of its forward pass.
struct CountedNetwork : Cell {
  std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);
  Layer first = add("first", [] { return torch::nn::Linear(6, 8); });
  Layer drop = add("drop", [] { return Dropout(0.5); });
  Layer last = add("last", [] { return torch::nn::Linear(8, 4); });

  Value forward(Value x) override {
    x = apply("count",
              [calls = calls](const Tensors& v) {
                ++*calls;
                return v[0].relu();
              },
              {first(x)});
    return last(drop(x));
  }
};

struct Options : PipelineOptions {
  Options() {
    micro_batches = 2;
    device = "test";
    capture_steps = true;
  }
};

struct Trained {
  explicit Trained(const PipelineOptions& options = Options()) : pipeline(world, network, cross_entropy, options) {
    pipeline.optimize_with([](const auto& parameters) { return torch::optim::SGD(parameters, 0.1); });
  }
  StepResult step(const StepOptions& options = {}) {
    return pipeline.train_step(torch::ones({4, 6}), torch::arange(4), options);
  }

  World world{{.stages = 1}};
  CountedNetwork network;
  Pipeline pipeline;
};

TEST_F(CapturedSteps, are_queued_by_one_call_from_the_fourth_on) {
  Trained trained;
  std::vector<double> losses;
  std::vector<int> calls;
  for (int step = 0; step < 6; ++step) {
    const StepResult result = trained.step();
    losses.push_back(result.loss());
    calls.push_back(trained.network.calls->load());
    EXPECT_EQ(result.use().idle.has_value(), step < 2);
  }
  EXPECT_EQ(calls, (std::vector<int>{2, 4, 6, 6, 6, 6}));
  EXPECT_EQ(trained.pipeline.trace().ranks.at(0).size(), 2U) << "captured steps have no times of instructions";
  trained.pipeline.evaluate(torch::ones({4, 6}), torch::arange(4)).loss();
  EXPECT_EQ(trained.network.calls->load(), 8);

  Options executed;
  executed.capture_steps = false;
  Trained other(executed);
  for (const double loss : losses) EXPECT_EQ(other.step().loss(), loss);
}

/// The error of the first of five steps that fails.
std::string failure_of(Trained& trained) {
  try {
    for (int step = 0; step < 5; ++step) trained.step().wait();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// The rank waits for the graph before its update. Step 2 is captured, step 4 replayed.
TEST_F(CapturedSteps, refuse_an_invalid_loss) {
  for (const int invalid : {2, 4}) {
    Trained trained;
    const auto step = [&](double input) {
      return trained.pipeline.train_step(torch::full({4, 6}, input), torch::arange(4), {.refuse_invalid_loss = true});
    };
    for (int i = 0; i < invalid; ++i) step(1).wait();
    const auto before = trained.pipeline.state();
    try {
      step(std::numeric_limits<double>::quiet_NaN()).wait();
      FAIL();
    } catch (const InvalidLoss& error) {
      EXPECT_EQ(error.what(), say("the loss of training step ", invalid,
                                  " is nan in micro-batch 0 (stage 0): input 0 of the batch is not finite"));
    }
    for (const auto& [name, value] : trained.pipeline.state()) EXPECT_TRUE(torch::equal(value, before.at(name)));
    const int calls = trained.network.calls->load();
    const double loss = step(1).loss();
    EXPECT_EQ(trained.network.calls->load(), calls) << "replayed";

    Options executed;
    executed.capture_steps = false;
    Trained other(executed);
    for (int i = 0; i < invalid; ++i) other.step().wait();
    other.pipeline.leave_out_step();
    EXPECT_EQ(other.step().loss(), loss);
  }
}

// Where the list of instructions would end at its first message, a graph would run to its end.
TEST_F(CapturedSteps, do_not_update_after_an_abort) {
  JoinedWorld joined({.stages = 2}, stream_groups());
  CountedNetwork network;
  Options options;
  options.static_shapes = true;
  Pipeline pipeline(joined.world, network, cross_entropy, options);
  pipeline.optimize_with([](const auto& parameters) { return torch::optim::SGD(parameters, 0.1); });
  const auto step = [&] { return pipeline.train_step(torch::ones({4, 6}), torch::arange(4)); };
  for (int i = 0; i < 4; ++i) step().wait();
  const std::map<std::string, torch::Tensor> live = pipeline.local_state();
  const auto copies = [&] {
    std::vector<torch::Tensor> values;
    for (const auto& [name, value] : live) {
      const c10::DeviceGuard guard(value.device());
      values.push_back(value.cpu());
      record_use(value, current_stream(value.device()));
    }
    return values;
  };
  const auto before = copies();
  joined.world.context(WorldRank(0)).endpoint->abort("rank 0 has stopped");
  EXPECT_THROW(step().wait(), RankFailure);
  const auto after = copies();
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(torch::equal(before[i], after[i])) << i;
}

// An earlier call of the accumulation may have had no sample for a replica.
TEST_F(CapturedSteps, add_to_the_gradients_that_there_are) {
  const auto train = [](bool captured) {
    JoinedWorld joined({.stages = 1, .replicas = 2}, stream_groups());
    CountedNetwork network;
    Options options;
    options.static_shapes = captured;
    options.capture_steps = captured;
    Pipeline pipeline(joined.world, network, cross_entropy, options);
    pipeline.optimize_with([](const auto& parameters) { return torch::optim::SGD(parameters, 0.1); });
    pipeline.update_every(2);
    torch::manual_seed(3);
    for (const std::int64_t samples : {8, 8, 8, 8, 8, 8, 8, 8, 1, 8, 1, 8, 1, 8, 1, 8, 8, 8})
      pipeline.train_step(torch::randn({samples, 6}), torch::arange(samples) % 4).wait();
    return pipeline.state();
  };
  const auto executed = train(false), captured = train(true);
  for (const auto& [name, value] : executed) EXPECT_TRUE(torch::equal(value, captured.at(name))) << name;
}

TEST_F(CapturedSteps, of_batches_with_other_shapes_are_refused) {
  Trained changes;
  EXPECT_EQ(failure_of(changes), "");
  try {
    changes.pipeline.train_step(torch::ones({4, 6}, torch::kFloat64), torch::arange(4)).wait();
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what())
                  .find("input 0 of 4 samples is double [2, 6] and was float [2, 6] when the step "
                        "was captured: leave out capture_steps"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(CapturedSteps, that_keep_their_outputs_are_executed) {
  Trained trained;
  ASSERT_EQ(failure_of(trained), "");
  const int before = trained.network.calls->load();
  const StepResult result = trained.step({.keep_outputs = true});
  EXPECT_EQ(result.outputs()->outputs.at(0).size(0), 4);
  EXPECT_EQ(trained.network.calls->load(), before + 2);
}

/// The error of five steps.
std::string error_of_training(Cell& network) {
  World world({.stages = 1});
  Pipeline pipeline(world, network, cross_entropy, Options());
  pipeline.optimize_with([](const auto& parameters) { return torch::optim::SGD(parameters, 0.1); });
  try {
    for (int step = 0; step < 5; ++step) pipeline.train_step(torch::ones({4, 6}), torch::arange(4)).wait();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

/// That of a network with a layer "second", which `build` makes.
template <class Build>
std::string error_with(const Build& build) {
  struct Network : Cell {
    explicit Network(const Build& of_second) : second(add("second", of_second)) {}
    Layer first = add("first", [] { return torch::nn::Linear(6, 4); });
    Layer second;
    Value forward(Value x) override { return second(first(x)); }
  } network(build);
  return error_of_training(network);
}

TEST_F(CapturedSteps, of_layers_that_draw_what_a_graph_would_repeat_are_refused) {
  const std::string text =
      " draws random numbers that a captured step would repeat in every step: take penstock::Dropout, or leave out "
      "capture_steps (--capture-steps)";
  EXPECT_NE(error_with([] { return torch::nn::Dropout(0.5); }).find("'second'" + text), std::string::npos);
  EXPECT_EQ(error_with([] { return Dropout(0.5); }), "");
  struct Noisy : Cell {
    Layer first = add("first", [] { return torch::nn::Linear(6, 4); });
    Value forward(Value x) override {
      x = first(x);
      return x + normal_like(x);
    }
  } noisy;
  EXPECT_NE(error_of_training(noisy).find("'normal_like'" + text), std::string::npos);
}

TEST_F(CapturedSteps, of_layers_that_wait_for_the_device_are_refused) {
  struct Waits : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x) { return x * x.detach().max().item<double>(); }
  };
  EXPECT_NE(error_with([] { return std::make_shared<Waits>(); })
                .find("'second': a number for the host in a capture (while the step was captured, when no layer, loss "
                      "or function may use the host: leave out capture_steps (--capture-steps) where one does)"),
            std::string::npos);
}

std::string refusal_of(World& world, const PipelineOptions& options) {
  CountedNetwork network;
  try {
    Pipeline(world, network, cross_entropy, options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST_F(CapturedSteps, are_refused_where_there_can_be_no_graph) {
  World one({.stages = 1}), two({.stages = 2});
  Options options;
  options.device = "cpu";
  EXPECT_EQ(refusal_of(one, options),
            "steps cannot be captured on the CPU, which has no graphs: give a device, or leave out capture_steps "
            "(--capture-steps)");
  EXPECT_EQ(refusal_of(two, Options()),
            "steps cannot be captured where 2 ranks exchange messages over threads, which a graph cannot contain: give "
            "--transport nccl, or leave out capture_steps (--capture-steps)");
  JoinedWorld joined({.stages = 2}, stream_groups());
  EXPECT_EQ(refusal_of(joined.world, Options()),
            "steps cannot be captured over streams while messages are announced: give static_shapes (--static-shapes), "
            "too, or leave out capture_steps (--capture-steps)");
  options = Options();
  options.count_bytes = true;
  EXPECT_EQ(
      refusal_of(one, options),
      "steps cannot be captured while bytes are counted, which the host does: leave out count_bytes, or leave out "
      "capture_steps (--capture-steps)");
}

}  // namespace
}  // namespace penstock::test::captured_steps_test
