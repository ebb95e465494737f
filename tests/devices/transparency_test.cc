// Ranks on test devices compute the losses, parameters and buffers of ranks on the CPU, bit by bit: every schedule, and
// whatever has work on streams. The test device detects races, missing device guards and memory that is freed too
// early; a violation fails the step.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "penstock/base/clock.h"
#include "penstock/pipeline/profiler.h"
#include "penstock/pipeline/weight_average.h"
#include "penstock/transport/device_hand_over.h"
#include "tests/runtime/matrix_jobs.h"
#include "tests/support/expect_same.h"
#include "tests/support/pipeline_of.h"
#include "tests/support/test_device.h"

namespace penstock::test::transparency_test {
namespace {

/// "test": rank r on device r mod 3. "test:1": all ranks on that one, on streams of their own.
class OnDevices : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { stream_order().take_violations(); }
  void TearDown() override { EXPECT_EQ(stream_order().take_violations(), std::vector<std::string>{}); }

  static std::vector<int> stage_counts() {
    return std::string(GetParam()) == "test" ? std::vector<int>{2, 4} : std::vector<int>{3};
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, OnDevices, testing::Values("test", "test:1"), [](const auto& device) {
  return std::string(device.param) == "test" ? "one_per_rank" : "one_for_all";
});

// Without an evaluation: on the CPU it reads rows of the batch in place, whose alignment changes bits in BLAS.
TEST_P(OnDevices, every_schedule_equals_the_cpu) {
  std::map<std::pair<int, WeightGradients>, MatrixOutcome> alone;  // by micro-batches
  {
    World world({.stages = 1});
    for (const auto mode : {WeightGradients::stream, WeightGradients::fused})
      for (const int m : {3, 5})
        alone[{m, mode}] = run_deep_job(world, {.micro_batches = m, .weight_gradients = mode, .evaluates = false});
  }
  int cases = 0;
  for (const int stages : stage_counts()) {
    World world({.stages = stages});
    for (const auto mode : {WeightGradients::stream, WeightGradients::fused})
      for (MatrixCase one : deep_cases(stages, mode)) {
        if (one.micro_batches != (stages == 2 ? 3 : 5)) continue;
        one.device = GetParam();
        one.evaluates = false;
        ++cases;
        const MatrixOutcome outcome = run_deep_job(world, one);
        ASSERT_EQ(difference(alone.at({one.micro_batches, mode}), outcome), "") << one.name();
        for (const RankPeak& peak : outcome.peaks) EXPECT_EQ(peak.measured, peak.predicted) << one.name();
      }
  }
  std::cout << cases << " cases, each with 3 steps\n";
}

TEST_P(OnDevices, skips_ties_recompute_and_running_statistics_equal_the_cpu) {
  for (const int stages : stage_counts()) {
    World world({.stages = stages});
    EXPECT_EQ(difference_of_u_jobs(world, GetParam(), stages % 2 == 0 ? 5 : 2), "") << stages;
  }
}

TEST_P(OnDevices, replicas_equal_the_cpu) {
  World world({.stages = 2, .replicas = 2});
  EXPECT_EQ(difference_of_u_jobs(world, GetParam(), 5), "");
}

struct Training {
  std::string device = "cpu";
  int stages = 2;
  int replicas = 1;
};

/// Clipping, a step in parts, an average of weights, metrics and inference.
StateDict results_of(const Training& training) {
  constexpr std::int64_t samples = 32;  // in micro-batches of 8 rows of 24 bytes, which begin where an allocation may
  PipelineOf<DeepNetwork> pipeline(
      {.stages = training.stages, .replicas = training.replicas},
      {.micro_batches = 4, .schedule = "zb-h1", .clip_norm = 0.05, .device = training.device, .seed = 3}, adam());
  WeightAverage average(pipeline, 0.5);
  torch::manual_seed(2);
  StateDict results;
  const torch::Tensor targets = torch::arange(samples) % 4;
  for (int step = 0; step < 3; ++step) {
    const StepResult result = pipeline.train_step(torch::randn({samples, 6}), targets);
    results.insert(say("loss ", step), torch::tensor(result.loss(), torch::kFloat64));
    results.insert(say("norm ", step), torch::tensor(result.gradient_norm(), torch::kFloat64));
  }
  const StepResult result = pipeline.forward_backward(torch::randn({samples, 6}), targets);
  results.insert("loss of the parts", torch::tensor(result.loss(), torch::kFloat64));
  pipeline.step();
  const torch::Tensor inputs = torch::randn({samples, 6});
  const StepResult evaluated = pipeline.evaluate(inputs, targets, {correct}, {.keep_outputs = true});
  results.insert("evaluated", torch::tensor(evaluated.loss(), torch::kFloat64));
  results.insert("correct", torch::tensor(evaluated.metrics().front(), torch::kFloat64));
  results.insert("inferred", pipeline.infer({inputs}).output());
  average.use(true);
  for (const auto& [name, value] : pipeline.state_dict().pairs()) results.insert("average of " + name, value);
  average.use(false);
  for (const auto& [name, value] : pipeline.state_dict().pairs()) results.insert(name, value);
  return results;
}

TEST_P(OnDevices, clipping_parts_averages_metrics_and_inference_equal_the_cpu) {
  for (const int replicas : {1, 2}) {
    const auto expected = results_of({"cpu", 2, replicas});
    for (const int stages : {1, 2, 3}) {
      const auto got = results_of({GetParam(), stages, replicas});
      expect_same(expected, got, say("p ", stages, ", d ", replicas));
    }
  }
}

TEST_P(OnDevices, no_thread_waits_for_a_device_within_a_step) {
  for (const char* schedule : {"1f1b", "zb-h1", "interleaved"})
    for (const int replicas : {1, 2}) {
      PipelineOf<UNetwork> pipeline({.stages = 2, .replicas = replicas},
                                    {.micro_batches = 4,
                                     .schedule = schedule,
                                     .clip_norm = 1,
                                     .recompute = true,
                                     .device = c10::Device(GetParam()),
                                     .partition = "uniform"},
                                    adam());
      const torch::Tensor inputs = torch::randn({16, 2, 8}), targets = torch::arange(16) % 4;
      pipeline.train_step(inputs, targets).wait();  // this one also looks for layers that change their input
      pipeline.train_step(inputs, targets).wait();
      stream_order().forget_synchronizations();
      pipeline.train_step(inputs, targets).wait();
      // Every rank waits once at its end, and reads the device's clock.
      const int ranks = 2 * replicas;
      EXPECT_EQ(stream_order().synchronizations(), (std::map<std::string, int>{{"event", ranks}, {"stream", ranks}}))
          << schedule << ", d " << replicas;
    }
}

/// A pipeline of the deep network in two stages.
struct DeepPipeline {
  explicit DeepPipeline(const PipelineOptions& options) : pipeline(world, network, cross_entropy, options) {
    pipeline.optimize_with(adam());
  }

  World world{{.stages = 2}};
  DeepNetwork network;
  Pipeline pipeline;
};

TEST_P(OnDevices, an_invalid_loss_is_refused_as_on_the_cpu) {
  const auto refusal = [](const std::string& device) {
    DeepPipeline deep({.micro_batches = 3, .device = device, .seed = 1});
    Pipeline& pipeline = deep.pipeline;
    torch::manual_seed(1);
    torch::Tensor inputs = torch::randn({9, 6});
    const torch::Tensor targets = torch::arange(9) % 4;
    pipeline.train_step(inputs, targets).wait();
    inputs[4][2] = std::nan("");
    std::string text;
    try {
      pipeline.train_step(inputs, targets, {.refuse_invalid_loss = true}).wait();
    } catch (const InvalidLoss& error) {
      text = error.what();
    }
    inputs[4][2] = 0;
    return say(text, " then ", pipeline.train_step(inputs, targets).loss());
  };
  const std::string expected = refusal("cpu");
  EXPECT_NE(expected.find("in micro-batch 1"), std::string::npos) << expected;
  EXPECT_EQ(refusal(GetParam()), expected);
}

TEST_P(OnDevices, a_batch_of_the_program_on_a_device_is_taken_in_order) {
  const auto losses = [](const std::string& device, bool batch_is_there) {
    DeepPipeline deep({.micro_batches = 3, .device = device, .seed = 1});
    Pipeline& pipeline = deep.pipeline;
    torch::manual_seed(1);
    std::vector<double> all;
    for (int step = 0; step < 3; ++step) {
      const c10::Device there = batch_is_there ? test_device(1) : c10::Device(c10::kCPU);
      const c10::DeviceGuard guard(there);
      const torch::Tensor inputs = torch::randn({9, 6}).to(there), targets = (torch::arange(9) % 4).to(there);
      all.push_back(pipeline.train_step(inputs * 2, targets).loss());
    }
    return all;
  };
  const auto expected = losses("cpu", false);
  EXPECT_EQ(losses(GetParam(), true), expected);
}

TEST_P(OnDevices, inputs_of_an_inference_on_a_device_are_taken_in_order) {
  const auto outputs = [](const std::string& device, c10::Device there) {
    // Of 8 rows of 24 bytes, which begin where an allocation may: on the CPU they are read in place, and their
    // alignment changes bits in BLAS.
    DeepPipeline deep({.micro_batches = 4, .device = device});
    torch::manual_seed(1);
    const c10::DeviceGuard guard(there);
    const torch::Tensor inputs = torch::randn({32, 6}).to(there);
    return deep.pipeline.infer({inputs * 2}).output().cpu();
  };
  EXPECT_TRUE(torch::equal(outputs(GetParam(), test_device(1)), outputs("cpu", c10::kCPU)));
}

enum class Access { reads_gradients, reads_state, changes_state };

/// What the program sees of the ranks' tensors after a step. It may not read them before a later step: the test device
/// does not know what one thread of the host tells another.
StateDict values_of_ranks(const std::string& device, Access access) {
  DeepPipeline deep({.micro_batches = 3, .device = device});
  Pipeline& pipeline = deep.pipeline;
  torch::manual_seed(1);
  pipeline.forward_backward(torch::randn({9, 6}), torch::arange(9) % 4);
  pipeline.reduce_gradients();
  if (access != Access::reads_gradients) pipeline.step();
  StateDict values;
  const torch::NoGradGuard no_grad;
  for (auto& item : access == Access::reads_gradients ? pipeline.local_gradients() : pipeline.local_state_dict()) {
    torch::Tensor& tensor = item.value();
    const c10::DeviceGuard guard(tensor.device());
    values.insert(item.key(), access == Access::changes_state ? tensor.mul_(0.5) : (tensor * 2).cpu());
    transport::record_use(tensor, transport::current_stream(tensor.device()));
  }
  if (access != Access::changes_state) return values;
  pipeline.sync_ties();
  return pipeline.state_dict();
}

TEST_P(OnDevices, the_program_reads_and_changes_tensors_of_ranks) {
  for (const Access access : {Access::reads_gradients, Access::reads_state, Access::changes_state}) {
    const auto expected = values_of_ranks("cpu", access), got = values_of_ranks(GetParam(), access);
    expect_same(expected, got);
  }
}

TEST_P(OnDevices, traces_contain_the_times_of_the_device) {
  DeepPipeline deep({.micro_batches = 4, .device = c10::Device(GetParam())});
  Pipeline& pipeline = deep.pipeline;
  constexpr std::int64_t second = 1'000'000'000;
  const std::int64_t begin = now_ns();
  for (int step = 0; step < 2; ++step) pipeline.train_step(torch::randn({8, 6}), torch::arange(8) % 4).wait();
  const std::int64_t end = now_ns();
  const Trace trace = Profiler(pipeline).trace();
  for (const auto& steps : trace.ranks) {
    ASSERT_EQ(steps.size(), 2u);
    for (const RankStep& step : steps) {
      ASSERT_FALSE(step.spans.empty());
      std::int64_t last = step.spans.front().begin_ns;
      for (const Span& span : step.spans) {
        EXPECT_GE(span.begin_ns, last);
        EXPECT_GE(span.end_ns, span.begin_ns);
        last = span.end_ns;
      }
      // They are on the clock of the host, up to the moment between two readings.
      EXPECT_GT(step.spans.front().begin_ns, begin - second);
      EXPECT_LT(last, end + second);
    }
  }
}

TEST_P(OnDevices, layers_are_timed_by_the_device) {
  DeepPipeline deep({.micro_batches = 4, .schedule = "zb-h1", .device = c10::Device(GetParam())});
  Pipeline& pipeline = deep.pipeline;
  const TimedSteps timed = Profiler(pipeline).time_layers(torch::randn({8, 6}), torch::arange(8) % 4, 2);
  ASSERT_FALSE(timed.costs.layers.empty());
  for (const LayerCost& layer : timed.costs.layers) {
    EXPECT_GT(layer.forward, 0) << layer.name;
    if (layer.name.starts_with("hidden")) {
      EXPECT_GT(layer.weight_grad, 0) << layer.name;
    }
  }
}

struct WatchedNetwork : Cell {
  Layer first = add("first", [] { return torch::nn::Linear(6, 10); });
  Layer last = add("last", [] { return torch::nn::Linear(10, 4); });
  std::shared_ptr<std::atomic<int>> elsewhere = std::make_shared<std::atomic<int>>(0);

  Value forward(Value x) override {
    x = penstock::apply("watch",
                        [count = elsewhere](const Tensors& v) {
                          const torch::Tensor y = v[0] * 2;
                          const auto thread = std::this_thread::get_id();
                          if (y.requires_grad())
                            y.register_hook([count, thread](const torch::Tensor&) {
                              if (std::this_thread::get_id() != thread) ++*count;
                            });
                          return y;
                        },
                        {first(x)});
    return last(x);
  }
};

TEST_P(OnDevices, backward_passes_run_on_the_threads_of_the_ranks) {
  World world({.stages = 2});
  WatchedNetwork network;
  const PipelineOptions options{.micro_batches = 2, .device = torch::Device(GetParam()), .partition = "uniform"};
  Pipeline pipeline(world, network, cross_entropy, options);
  pipeline.optimize_with(adam());
  pipeline.train_step(torch::randn({8, 6}), torch::arange(8) % 4).wait();
  EXPECT_EQ(*network.elsewhere, 0) << "calls of the hook on another thread than that of the forward pass";
}

}  // namespace
}  // namespace penstock::test::transparency_test
