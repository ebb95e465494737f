// Inference: outputs of any number and kind, for every placement and batch, on the processes that get them.
#include "penstock/pipeline/infer.h"
#include "penstock/model/dropout.h"

#include <gtest/gtest.h>

#include "penstock/pipeline/profiler.h"
#include "tests/base/error_text.h"
#include "tests/runtime/small_job.h"
#include "tests/support/pipeline_of.h"

namespace penstock::test::infer_test {
namespace {

torch::Tensor rows(std::int64_t count) {
  torch::manual_seed(21);
  return torch::randn({count, 3, 4});
}

/// The same network on one device.
torch::Tensor standalone(const torch::Tensor& inputs) {
  SmallNetwork network;
  network.named_parameters(5);
  const torch::NoGradGuard no_grad;
  return network(Value(inputs)).tensor();
}

struct Shape {
  const char* schedule;
  int stages;
  int chunks;
  int micro_batches;
};

TEST(Infer, gives_all_rows_in_order_for_any_batch_and_placement) {
  for (const Shape& shape : {Shape{"gpipe", 1, 1, 4}, Shape{"1f1b", 2, 1, 4}, Shape{"1f1b", 4, 1, 4},
                             Shape{"interleaved", 2, 2, 4}, Shape{"zb-v", 2, 2, 4}, Shape{"sequential", 3, 1, 2}}) {
    PipelineOf<SmallNetwork> pipeline(
        {.stages = shape.stages},
        {.micro_batches = shape.micro_batches, .schedule = shape.schedule, .chunks = shape.chunks, .seed = 5});
    for (const std::int64_t count : {9, 1, 3, 4, 16}) {
      const InferResult result = pipeline.infer(rows(count));
      ASSERT_TRUE(result.has_outputs());
      ASSERT_EQ(result.outputs().size(), 1U);
      EXPECT_EQ(result.output().sizes(), (torch::IntArrayRef{count, 4}));
      EXPECT_TRUE(torch::allclose(result.output(), standalone(rows(count)), 1e-5, 1e-6))
          << shape.schedule << " with " << count << " rows";
      EXPECT_FALSE(result.output().requires_grad());
    }
    for (const RankPeak& peak : Profiler(pipeline).local_peaks()) {
      EXPECT_EQ(peak.measured, 0);
      EXPECT_EQ(peak.predicted, 0);
    }
  }
}

TEST(Infer, has_the_bits_of_one_stage) {
  torch::Tensor alone;
  for (const int stages : {1, 2, 3, 4}) {
    PipelineOf<SmallNetwork> pipeline({.stages = stages}, {.micro_batches = 4, .seed = 5});
    const torch::Tensor output = pipeline.infer(rows(9)).output();
    if (stages == 1) alone = output;
    EXPECT_TRUE(torch::equal(alone, output)) << stages;
  }
}

/// With dropout; returns several values of several kinds, one of them undefined.
struct ManyOutputs : Cell {
  Layer a = add("a", [] { return torch::nn::Linear(12, 6); });
  Layer dropout = add("dropout", [] { return Dropout(0.5); });
  Layer b = add("b", [] { return torch::nn::Linear(6, 6); });
  using Cell::forward;
  Values forward_many(Values inputs) override {
    const Value hidden = dropout(a(flatten(inputs[0], 1)));
    const Value largest = apply("largest", [](const Tensors& x) { return x[0].argmax(1); }, {hidden});
    const Value nothing = apply("nothing", [](const Tensors&) { return torch::Tensor(); }, {hidden});
    const Value positive = apply("positive", [](const Tensors& x) { return x[0] > 0; }, {b(hidden)});
    return {hidden, largest, nothing, positive};
  }
};

TEST(Infer, returns_outputs_of_any_number_and_kind_in_evaluation_mode) {
  for (const int stages : {1, 2}) {
    PipelineOf<ManyOutputs> pipeline({.stages = stages}, {.micro_batches = 3, .partition = "uniform", .seed = 5});
    const Tensors outputs = pipeline.infer(rows(7)).outputs();
    ASSERT_EQ(outputs.size(), 4U);
    EXPECT_EQ(outputs[0].sizes(), (torch::IntArrayRef{7, 6}));
    EXPECT_EQ(outputs[0].eq(0).sum().item<int>(), 0) << "dropout dropped";
    EXPECT_TRUE(torch::equal(outputs[1], outputs[0].argmax(1)));
    EXPECT_FALSE(outputs[2].defined());
    EXPECT_EQ(outputs[3].dtype(), torch::kBool);
    EXPECT_EQ(outputs[3].size(0), 7);
  }
}

TEST(Infer, outputs_belong_to_the_caller) {
  struct Same : Cell {
    Layer a = add("a", [] { return torch::nn::Identity(); });
    Value forward(Value x) override { return a(x); }
  } network;
  World world({.stages = 1});
  Pipeline pipeline(world, network, cross_entropy, {});
  const torch::Tensor inputs = rows(2), before = inputs.clone();
  torch::Tensor(pipeline.infer(inputs).output()).zero_();
  EXPECT_TRUE(torch::equal(inputs, before));
}

TEST(Infer, replicas_share_the_rows_or_take_all_of_them) {
  PipelineOf<SmallNetwork> pipeline({.stages = 2, .replicas = 3}, {.micro_batches = 2, .seed = 5});
  for (const ReplicaInput replicas : {ReplicaInput::share, ReplicaInput::each})
    for (const std::int64_t count : {9, 2, 1}) {
      const torch::Tensor output = pipeline.infer(rows(count), {.replicas = replicas}).output();
      EXPECT_TRUE(torch::allclose(output, standalone(rows(count)), 1e-5, 1e-6)) << count;
    }
}

TEST(Infer, runs_between_training_steps) {
  SmallNetwork network;
  World world({.stages = 2});
  Pipeline pipeline(world, network, cross_entropy, {.micro_batches = 4, .seed = 5});
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  std::vector<double> losses;
  std::vector<InferResult> results;
  for (const auto& [inputs, targets] : small_batches(5)) {
    results.push_back(pipeline.infer(inputs));
    losses.push_back(pipeline.train_step(inputs, targets).loss());
  }
  EXPECT_EQ(losses, run_small_job({.world = {.stages = 2}, .pipeline = {.micro_batches = 4, .seed = 5}}).losses);
  EXPECT_FALSE(torch::equal(results[0].output(), results[1].output()));
}

TEST(Infer, many_may_be_in_flight) {
  PipelineOf<SmallNetwork> pipeline({.stages = 2}, {.micro_batches = 2, .seed = 5});
  std::vector<InferResult> results;
  for (std::int64_t count = 1; count <= 30; ++count) results.push_back(pipeline.infer(rows(count)));
  for (std::int64_t count = 1; count <= 30; ++count) {
    results[static_cast<std::size_t>(count - 1)].wait();
    EXPECT_TRUE(results[static_cast<std::size_t>(count - 1)].ready());
    EXPECT_EQ(results[static_cast<std::size_t>(count - 1)].output().size(0), count);
  }
}

TEST(Infer, rejects_invalid_options) {
  SmallNetwork network;
  World world({.stages = 2});
  Pipeline pipeline(world, network, cross_entropy, {.micro_batches = 2, .seed = 5});
  EXPECT_EQ(error_text<ConfigError>([&] { pipeline.infer({rows(2), rows(2)}); }), "the network takes 1 inputs, not 2");
  EXPECT_TRUE(says(error_text<ConfigError>([&] { pipeline.infer(rows(0)); }), "at least one row"));
  EXPECT_TRUE(says(error_text<ConfigError>([&] { pipeline.infer(rows(4), {.micro_batches = 3}); }),
                   "inference in 3 micro-batches", "made for 2"));
}

/// Sums its inputs, row by row, over the calls of a session.
struct Sum : Cell {
  Layer in = add("in", [] { return torch::nn::Identity(); });
  Layer out = add("out", [] { return torch::nn::Identity(); });
  Value forward(Value x) override {
    const auto add_up = [](const Tensors& now) {
      SequenceMemory* memory = SequenceMemory::current();
      if (!memory) return now[0];
      auto& mine = memory->of_call();
      mine = {mine.empty() ? now[0] : mine[0] + now[0]};
      return mine[0];
    };
    return out(apply("sum", add_up, {in(x)}) + apply("sum", add_up, {x}));
  }
};

TEST(InferenceSession, remembers_by_row_and_call) {
  for (const int stages : {1, 2}) {
    Sum network;
    World world({.stages = stages});
    Pipeline pipeline(world, network, cross_entropy, {.micro_batches = 3, .partition = "uniform"});
    const torch::Tensor a = torch::arange(7), b = 10 * a;
    InferenceSession one(pipeline), other(pipeline);
    std::vector<InferResult> results;  // in flight together
    for (const torch::Tensor& input : {a, b}) {
      results.push_back(pipeline.infer(input, {.session = one}));
      results.push_back(pipeline.infer(-input, {.session = other}));
      results.push_back(pipeline.infer(input));
    }
    EXPECT_TRUE(torch::equal(results[0].output(), 2 * a));
    EXPECT_TRUE(torch::equal(results[3].output(), 2 * (a + b)));
    EXPECT_TRUE(torch::equal(results[4].output(), -2 * (a + b)));
    EXPECT_TRUE(torch::equal(results[5].output(), 2 * b)) << "remembered without a session";

    EXPECT_TRUE(says(error_text<ConfigError>([&] { pipeline.infer(a.narrow(0, 0, 3), {.session = one}); }),
                     "has 7 rows, but this call has 3"));
    EXPECT_TRUE(says(error_text<ConfigError>([&] { pipeline.infer(a, {.micro_batches = 1, .session = one}); }),
                     "other replicas or micro_batches"));
    one.restart();
    EXPECT_TRUE(torch::equal(pipeline.infer(a.narrow(0, 0, 3), {.session = one}).output(), 2 * a.narrow(0, 0, 3)));
    EXPECT_TRUE(torch::equal(pipeline.infer(a, {.session = other}).output(), 2 * (a - a - b)));

    Pipeline stranger(world, network, cross_entropy, {.micro_batches = 3, .partition = "uniform"});
    EXPECT_TRUE(says(error_text<ConfigError>([&] { stranger.infer(a, {.session = other}); }), "another pipeline"));
  }
}

TEST(InferenceSession, frees_its_memory_when_it_ends) {
  static std::atomic<int> alive;
  struct Probe : Cell {
    Layer in = add("in", [] { return torch::nn::Identity(); });
    Value forward(Value x) override {
      return apply("probe",
                   [](const Tensors& now) {
                     if (SequenceMemory* memory = SequenceMemory::current()) {
                       static float data[1] = {0};
                       ++alive;
                       memory->of_call() = {torch::from_blob(data, {1}, [](void*) { --alive; })};
                     }
                     return now[0].clone();
                   },
                   {in(x)});
    }
  } network;
  World world({.stages = 2});
  Pipeline pipeline(world, network, cross_entropy, {.micro_batches = 2, .partition = "uniform"});
  {
    InferenceSession session(pipeline);
    pipeline.infer(rows(4), {.session = session}).wait();
    EXPECT_EQ(alive, 2);
    session.restart();
    pipeline.infer(rows(4)).wait();
    EXPECT_EQ(alive, 0);
    pipeline.infer(rows(4), {.session = session}).wait();
    EXPECT_EQ(alive, 2);
  }
  pipeline.infer(rows(4)).wait();  // queued behind the job that frees it
  EXPECT_EQ(alive, 0);
}

TEST(Infer, reports_a_failure_to_every_process) {
  struct Failing : Cell {
    Layer in = add("in", [] { return torch::nn::Linear(12, 4); });
    Value forward(Value x) override {
      return apply("fail",
                   [](const Tensors& y) -> torch::Tensor {
                     require<DataError>(y[0].size(0) < 3, "no more than 2 rows");
                     return y[0];
                   },
                   {in(flatten(x, 1))});
    }
  } network;
  World world({.stages = 2});
  Pipeline pipeline(world, network, cross_entropy, {.partition = "uniform"});
  EXPECT_EQ(pipeline.infer(rows(2)).output().size(0), 2);
  const InferResult result = pipeline.infer(rows(3));
  EXPECT_TRUE(says(error_text<RankFailure>([&] { result.outputs(); }), "no more than 2 rows"));
  EXPECT_TRUE(says(error_text<RankFailure>([&] { result.wait(); }), "no more than 2 rows"));
}

}  // namespace
}  // namespace penstock::test::infer_test
