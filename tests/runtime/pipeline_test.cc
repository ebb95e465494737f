// Pipelines of networks other than plain chains of layers.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <mutex>

#include "penstock/pipeline/profiler.h"
#include "penstock/trace/account.h"
#include "tests/base/error_text.h"
#include "tests/runtime/small_job.h"
#include "tests/runtime/trained.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::pipeline_test {
namespace {

torch::Tensor inputs_of(std::int64_t samples) {
  torch::manual_seed(11);
  return torch::randn({samples, 12});
}
torch::Tensor targets_of(std::int64_t samples) {
  torch::manual_seed(12);
  return torch::randint(0, 4, {samples}, torch::kInt64);
}

/// Three steps of a new network.
template <class Network>
Trained train_on(int stages, const std::string& partition, int micro_batches = 3) {
  PipelineOf<Network> pipeline({.stages = stages}, {.micro_batches = micro_batches, .partition = partition, .seed = 2},
                               torch_sgd(0.1));
  return train(pipeline, inputs_of(8), targets_of(8));
}

template <class Network>
void expect_equal_on(int stages, const std::string& partition) {
  const Trained whole = train_on<Network>(1, "uniform");
  expect_same(whole, train_on<Network>(stages, partition));
  EXPECT_LT(whole.losses.back(), whole.losses.front());
  EXPECT_FALSE(whole.state.is_empty());
}

struct InPlace : Cell {
  Layer a = add("a", [] { return torch::nn::Linear(12, 16); });
  Layer relu = add("relu", [] { return torch::nn::ReLU(torch::nn::ReLUOptions(true)); });
  Layer b = add("b", [] { return torch::nn::Linear(16, 4); });
  Value forward(Value x) override { return b(relu(a(x))); }
};

// The received value is a leaf and shared with its sender: the layer must work on a copy of it.
TEST(InPlaceLayers, work_where_their_input_crosses_stages) { expect_equal_on<InPlace>(2, "relu"); }

struct InPlaceWithReader : Cell {
  Layer a = add("a", [] { return torch::nn::Linear(12, 16); });
  Layer relu = add("relu", [] { return torch::nn::ReLU(torch::nn::ReLUOptions(true)); });
  Layer b = add("b", [] { return torch::nn::Linear(16, 4); });
  Layer c = add("c", [] { return torch::nn::Linear(16, 4); });
  Value forward(Value x) override {
    Value y = a(x);
    Value z = relu(y);
    return b(y) + c(z);
  }
};

TEST(InPlaceLayers, are_an_error_where_another_layer_reads_their_input) {
  const std::string message = test::error_text<RankFailure>([&] { train_on<InPlaceWithReader>(1, "uniform"); });
  EXPECT_TRUE(test::says(message, "'relu' changes a value in place", "that 'b' reads afterwards")) << message;
}

TEST(InPlaceLayers, do_not_change_the_callers_batch) {
  struct First : Cell {
    Layer relu = add("relu", [] { return torch::nn::ReLU(torch::nn::ReLUOptions(true)); });
    Layer a = add("a", [] { return torch::nn::Linear(12, 4); });
    Value forward(Value x) override { return a(relu(x)); }
  };
  PipelineOf<First> pipeline({.stages = 1}, {.micro_batches = 2}, torch_sgd(0.1));
  const torch::Tensor inputs = inputs_of(8), before = inputs.clone();
  for (int step = 0; step < 3; ++step) pipeline.train_step(inputs, targets_of(8)).loss();
  EXPECT_TRUE(torch::equal(inputs, before));
}

struct UsedTwice : Cell {
  Layer in = add("in", [] { return torch::nn::Linear(12, 16); });
  Layer shared = add("shared", [] { return torch::nn::Linear(16, 16); });
  Layer out = add("out", [] { return torch::nn::Linear(16, 4); });
  Value forward(Value x) override { return out(relu(shared(relu(shared(in(x)))))); }
};

TEST(LayersUsedTwice, have_a_gradient_for_each_use) {
  UsedTwice plain;
  const auto loss = [&] {
    return torch::nn::functional::cross_entropy(plain(Value(inputs_of(8))).tensor(), targets_of(8));
  };
  expect_close(train_plainly(plain, loss, {.seed = 2}), train_on<UsedTwice>(1, "uniform", 1));
}

TEST(LayersUsedTwice, are_tied_across_stages) { expect_equal_on<UsedTwice>(2, "shared_2"); }

struct NormUsedTwice : Cell {
  Layer in = add("in", [] { return torch::nn::Linear(12, 16); });
  Layer norm = add("norm", [] { return torch::nn::BatchNorm1d(16); });
  Layer out = add("out", [] { return torch::nn::Linear(16, 4); });
  Value forward(Value x) override { return out(norm(relu(norm(in(x))))); }
};

TEST(LayersUsedTwice, with_running_statistics_on_two_stages_are_an_error) {
  const std::string text = test::error_text<ScheduleError>([&] { train_on<NormUsedTwice>(2, "norm_2"); });
  EXPECT_NE(text.find("'norm' is used on stage 0 and, as 'norm_2', on stage 1, and has buffers"), std::string::npos)
      << text;
}

struct Skips : Cell {
  Layer a = add("a", [] { return torch::nn::Linear(12, 16); });
  Layer b = add("b", [] { return torch::nn::Linear(16, 16); });
  Layer c = add("c", [] { return torch::nn::Linear(16, 16); });
  Layer d = add("d", [] { return torch::nn::Linear(16, 4); });
  Value forward(Value x) override {
    Value first = relu(a(x));
    Value second = relu(b(first));
    return d(relu(c(second)) + first);
  }
};

TEST(Skips, are_sent_directly_to_the_stage_that_reads_them) {
  expect_equal_on<Skips>(4, "b,c,d");
  PipelineOf<Skips> pipeline({.stages = 4}, {.micro_batches = 2, .partition = "b,c,d"});
  const std::string text = write_schedule(pipeline.schedule());
  EXPECT_TRUE(test::says(text, "0SEND_F0>2", "2SEND_B0>0")) << text;
}

TEST(Links, without_gradients_have_no_backward_messages) {
  PipelineOf<SmallNetwork> pipeline({.stages = 2}, {.micro_batches = 2, .partition = "a"});  // stage 0: only flatten
  const std::string text = write_schedule(pipeline.schedule());
  EXPECT_EQ(text.find("SEND_B"), std::string::npos) << text;
  expect_equal_on<SmallNetwork>(2, "a");
}

TEST(Sequential, is_accepted_as_a_network) {
  torch::manual_seed(1);
  torch::nn::Sequential network(torch::nn::Linear(12, 16), torch::nn::ReLU(), torch::nn::Linear(16, 4));
  World world({.stages = 2});
  Pipeline pipeline(world, *from_sequential(network), cross_entropy, {.micro_batches = 4});
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  EXPECT_TRUE(torch::equal(pipeline.state_dict()["0.weight"], network->named_parameters()["0.weight"]));
  const double whole =
      torch::nn::functional::cross_entropy(network->forward(inputs_of(8)), targets_of(8)).item<double>();
  EXPECT_NEAR(pipeline.train_step(inputs_of(8), targets_of(8)).loss(), whole, 1e-5);
}

TEST(Evaluate, equals_the_loss_of_the_next_step) {
  PipelineOf<SmallNetwork> pipeline({.stages = 3, .replicas = 2}, {.micro_batches = 2}, torch_sgd(0.1));
  const StepResult seen = pipeline.evaluate(inputs_of(8), targets_of(8), {correct});
  EXPECT_EQ(seen.weight(), 8);
  EXPECT_GE(seen.metrics().at(0), 0);
  EXPECT_EQ(pipeline.train_step(inputs_of(8), targets_of(8)).loss(), seen.loss());
}

TEST(Pipelines, share_a_world) {
  World world({.stages = 2});
  SmallNetwork one, other;
  Pipeline first(world, one, cross_entropy, {.micro_batches = 2, .seed = 2});
  Pipeline second(world, other, cross_entropy, {.micro_batches = 3, .seed = 2});
  for (Pipeline* pipeline : {&first, &second})
    pipeline->optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  for (int step = 0; step < 3; ++step) {
    const StepResult a = first.train_step(inputs_of(8), targets_of(8));
    const StepResult b = second.train_step(inputs_of(8), targets_of(8));
    EXPECT_NEAR(a.loss(), b.loss(), 1e-4);
  }
}

TEST(ScheduleFiles, train_with_the_same_results) {
  // Two stages on each of two ranks, in an order that no generator produces.
  Schedule schedule;
  schedule.name = "by hand";
  schedule.micro_batches = 2;
  schedule.rank_of_stage = {Rank(0), Rank(1), Rank(0), Rank(1)};
  schedule.orders.resize(2);
  for (int m = 0; m < 2; ++m)
    for (int s = 0; s < 4; ++s)
      schedule.orders[static_cast<std::size_t>(s % 2)].push_back(
          Instruction::compute(Op::forward, StageId(s), MicroBatch(m)));
  for (int m = 0; m < 2; ++m)
    for (int s = 3; s >= 0; --s)
      schedule.orders[static_cast<std::size_t>(s % 2)].push_back(
          Instruction::compute(Op::backward, StageId(s), MicroBatch(m)));
  const std::string path = testing::TempDir() + "by_hand.sched";
  std::ofstream(path) << write_schedule(schedule);

  JobOptions options;
  options.world.stages = 2;
  options.pipeline = {.micro_batches = 2, .schedule = path, .seed = 5};
  const JobOutcome by_hand = run_small_job(options);
  options.pipeline.schedule = "gpipe";
  EXPECT_EQ(by_hand.losses, run_small_job(options).losses);

  options.pipeline.schedule = path;
  options.pipeline.micro_batches = 3;
  EXPECT_THROW(run_small_job(options), ConfigError);
  options.world.stages = 3;
  options.pipeline.micro_batches = 2;
  EXPECT_THROW(run_small_job(options), ConfigError);
  std::remove(path.c_str());
}

// Two chunks per rank: stage 2 is updated before stage 0's gradients are complete.
TEST(Updates, free_the_applied_gradients) {
  PipelineOf<SmallNetwork> pipeline({.stages = 2}, {.micro_batches = 3, .chunks = 2});
  std::mutex mutex;
  std::vector<torch::Tensor> parameters;
  pipeline.optimize_with([&](std::vector<torch::Tensor> own) {
    const std::lock_guard lock(mutex);
    parameters.insert(parameters.end(), own.begin(), own.end());
    return torch::optim::SGD(std::move(own), 0.1);
  });
  const auto before = pipeline.state_dict();
  pipeline.train_step(inputs_of(12), targets_of(12));
  for (const auto& [name, value] : pipeline.state_dict().pairs())
    EXPECT_FALSE(torch::equal(value, before[name])) << name;
  ASSERT_FALSE(parameters.empty());
  for (const torch::Tensor& parameter : parameters) EXPECT_FALSE(parameter.grad().defined());
}

TEST(Misuse, is_reported_in_one_message) {
  World world({.stages = 2});
  SmallNetwork network;
  Pipeline pipeline(world, network, cross_entropy, {.micro_batches = 2});
  EXPECT_THROW(pipeline.train_step(inputs_of(8), targets_of(8)), ConfigError);  // no optimiser
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  EXPECT_THROW(pipeline.train_step(inputs_of(8), targets_of(7)), ConfigError);
  EXPECT_THROW(pipeline.train_step(inputs_of(8), torch::Tensor()), ConfigError);
  EXPECT_THROW(pipeline.train_step({inputs_of(8), inputs_of(8)}, targets_of(8)), ConfigError);
  EXPECT_NO_THROW(pipeline.train_step(inputs_of(8), targets_of(8)).loss());  // the pipeline remains usable
  EXPECT_THROW(Pipeline(world, network, cross_entropy, {.micro_batches = 0}), ConfigError);
  EXPECT_THROW(Pipeline(world, network, cross_entropy, {.schedule = "1f1c"}), ConfigError);
  EXPECT_THROW(Pipeline(world, network, cross_entropy, {.weight_gradients = WeightGradients::grouped}), ConfigError);
  EXPECT_THROW(World({.stages = 0}), ConfigError);
  EXPECT_THROW(World({.stages = 2, .threads = 0}), ConfigError);
}

TEST(Traces, contain_every_instruction_of_every_rank) {
  PipelineOf<SmallNetwork> pipeline({.stages = 2, .replicas = 2}, {.micro_batches = 3}, torch_sgd(0.1));
  for (int step = 0; step < 4; ++step) pipeline.train_step(inputs_of(12), targets_of(12));
  const Trace trace = Profiler(pipeline).trace();
  ASSERT_EQ(trace.ranks.size(), 4u);
  for (std::size_t r = 0; r < 4; ++r) {
    ASSERT_EQ(trace.ranks[r].size(), 4u);
    Order seen;
    for (const Span& span : trace.ranks[r].back().spans) seen.push_back(span.instruction);
    // A receive is recorded where a rank waits for it, which may be after other instructions: compare as sets.
    const auto instructions = [](const Order& order) {
      std::vector<std::string> all;
      for (const Instruction& i : order) all.push_back(to_string(i));
      std::sort(all.begin(), all.end());
      return all;
    };
    EXPECT_EQ(instructions(seen), instructions(trace.schedule.orders[r / 2])) << "rank " << r;
  }
  EXPECT_NO_THROW(account(trace));
}

}  // namespace
}  // namespace penstock::test::pipeline_test
