// The partition "time", with layers whose times are known.
#include "penstock/autotune/measured_options.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/autotune/autotune.h"
#include "penstock/base/error.h"
#include "penstock/layers/thread_scopes.h"
#include "penstock/model/stages.h"
#include "penstock/pipeline/pipeline.h"
#include "tests/autotune/slow_chain.h"
#include "tests/base/error_text.h"

namespace penstock::test::partition_by_time_test {
namespace {

const std::vector<Rank> two_ranks{Rank(0), Rank(1)};

TEST(FastestPartition, minimises_the_slowest_rank) {
  SlowChain chain({{}, {}, {}, {}, {}});
  const Graph graph = trace_graph(chain);
  EXPECT_EQ(fastest_partition(graph, {1, 1, 1, 1, 4}, two_ranks), "e");
  EXPECT_EQ(fastest_partition(graph, {4, 1, 1, 1, 1}, two_ranks), "b");
  EXPECT_EQ(fastest_partition(graph, {2, 2, 2, 2, 2}, {Rank(0), Rank(1), Rank(2), Rank(3), Rank(4)}), "b,c,d,e");
  // Two stages per rank in V shape: rank 0 has the first and the last.
  EXPECT_EQ(fastest_partition(graph, {1, 4, 4, 1, 6}, {Rank(0), Rank(1), Rank(1), Rank(0)}).size(), 5U);
}

TEST(FastestPartition, cuts_no_block) {
  SlowChain chain({{}, {}, {}, {}, {}});
  Graph graph = trace_graph(chain);
  for (int n : {1, 2, 3}) graph.nodes[static_cast<std::size_t>(n)].in_block = "block";
  EXPECT_EQ(fastest_partition(graph, {1, 1, 1, 1, 2}, two_ranks), "e");
  EXPECT_EQ(fastest_partition(graph, {3, 1, 1, 1, 1}, two_ranks), "b");
  EXPECT_EQ(fastest_partition(graph, {2, 2, 2, 2, 2}, {Rank(0), Rank(1), Rank(2), Rank(3)}).size(), 5U)
      << "three units do not make four stages";
}

TEST(FastestPartition, fewer_layers_than_stages_are_an_error) {
  SlowChain chain({Waits{}});
  EXPECT_TRUE(says(error_text<ScheduleError>([&] { fastest_partition(trace_graph(chain), {1}, two_ranks); }),
                   "1 layers", "2 stages"));
}

TEST(MeasuredTimes, are_the_times_of_the_layers) {
  SlowChain chain({{}, {20}, {}});
  const std::vector<double> seconds =
      measured_times(trace_graph(chain), {torch::randn({2, 4})}, std::make_shared<const kernels::KernelSelection>(), {},
                     [](const Node&) {});
  ASSERT_EQ(seconds.size(), 3U);
  EXPECT_GE(seconds[1], 0.02);
}

struct SeesTypeImpl : torch::nn::Module {
  explicit SeesTypeImpl(torch::Dtype& type) : seen(type) {}
  torch::Tensor forward(const torch::Tensor& x) {
    seen = x.scalar_type();
    return x;
  }
  torch::Dtype& seen;
};

struct LinearThenSeen : Cell {
  explicit LinearThenSeen(torch::Dtype& type)
      : linear(add("linear", [] { return std::make_shared<torch::nn::LinearImpl>(4, 4); })),
        sees(add("sees", [&type] { return std::make_shared<SeesTypeImpl>(type); })) {}
  Value forward(Value x) override { return sees(linear(x)); }
  Layer linear, sees;
};

TEST(MeasuredTimes, are_of_the_precision_of_the_pipeline) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    torch::Dtype seen = torch::kFloat64;
    LinearThenSeen cell(seen);
    measured_times(trace_graph(cell), {torch::randn({2, 4})}, std::make_shared<const kernels::KernelSelection>(),
                   layers::autocast_for(precision, torch::kCPU), [](const Node&) {});
    EXPECT_EQ(seen, precision == Precision::fp32 ? torch::kFloat32 : torch::kBFloat16);
  }
}

// Every rank gets the partition that follows from the measured times, and results do not depend on it.
TEST(PartitionByTime, follows_the_measured_times) {
  const torch::Tensor x = torch::randn({8, 4}), target = torch::randn({8, 4});
  for (const bool slow_first : {true, false}) {
    SlowChain chain(slow_first ? std::vector<Waits>{{60}, {}, {}, {}} : std::vector<Waits>{{}, {}, {}, {60}});
    World world({.stages = 2, .replicas = 2});
    Pipeline pipeline(world, chain, squared_error,
                      autotune(world, chain, squared_error, {.micro_batches = 2, .partition = "time"}, {.sample = x}));
    EXPECT_EQ(pipeline.options().partition, slow_first ? "b" : "d");
  }
  std::vector<double> losses;
  for (const std::string partition : {"time", "uniform"}) {
    SlowChain chain({{}, {}, {}});
    World world({.stages = 2});
    Pipeline pipeline(
        world, chain, squared_error,
        autotune(world, chain, squared_error, {.micro_batches = 2, .partition = partition}, {.sample = x}));
    pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
    pipeline.train_step(x, target).wait();
    losses.push_back(pipeline.train_step(x, target).loss());
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(PartitionByTime, measures_frozen_layers) {
  SlowChain chain({{60}, {}, {}});
  chain.change_layers([](const std::string& /*name*/, const LayerFactory& factory) {
    return LayerFactory{[factory] {
      BuiltLayer built = factory.build();
      built.module->parameters().front().set_requires_grad(false);
      return built;
    }};
  });
  World world({.stages = 2});
  const torch::Tensor x = torch::randn({8, 4});
  EXPECT_EQ(autotune(world, chain, squared_error, {.micro_batches = 2, .partition = "time"}, {.sample = x}).partition,
            "b");
}

TEST(PartitionByTime, needs_a_sample_unless_layers_are_annotated) {
  SlowChain chain({{}, {}});
  World world({.stages = 2});
  EXPECT_TRUE(says(error_text<ConfigError>([&] { Pipeline(world, chain, squared_error, {.partition = "time"}); }),
                   "partition 'time'", "autotune()"));
  const PipelineOptions by_time{.partition = "time"};
  EXPECT_TRUE(says(error_text<ConfigError>([&] { autotune(world, chain, squared_error, by_time, {}); }),
                   "AutotuneOptions::sample", "0 tensors", "takes 1"));
  SlowChain annotated({{}, {}});
  annotated.layers[0].pipeline_stage = 0;
  annotated.layers[1].pipeline_stage = 1;
  World another({.stages = 2});
  Pipeline pipeline(another, annotated, squared_error, autotune(another, annotated, squared_error, by_time, {}));
  EXPECT_EQ(describe_stages(pipeline).size(), 2U);
}

}  // namespace
}  // namespace penstock::test::partition_by_time_test
