// Memory limits in bytes: the bytes that are measured for them are those of a run, and a run keeps the limit.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "penstock/autotune/autotune.h"
#include "penstock/base/error.h"
#include "penstock/pipeline/pipeline.h"
#include "penstock/pipeline/profiler.h"
#include "penstock/schedule/schedule.h"
#include "tests/autotune/auto_jobs.h"
#include "tests/base/error_text.h"

namespace penstock::test::measured_bytes_test {
namespace {

/// Eight layers of different sizes: the stages differ in their activations.
struct Uneven : Cell {
  std::vector<Layer> layers;

  Uneven() {
    for (int n = 0; n < 8; ++n)
      layers.push_back(add(say("layer", n), [n] { return torch::nn::Linear(8 + 8 * n, 16 + 8 * n); }));
  }

  Value forward(Value x) override {
    for (Layer& layer : layers) x = relu(layer(x));
    return x;
  }
};

struct Job {
  std::string schedule = "1f1b";
  int ranks = 2;
  int replicas = 1;
  int micro_batches = 6;
  WeightGradients weight_gradients = WeightGradients::stream;
  MemoryLimit limit = BytesPerRank{std::int64_t{1} << 40};
  std::optional<StageCosts> costs = {};
};

PipelineOptions options_of(const Job& job) {
  return {.micro_batches = job.micro_batches,
          .schedule = job.schedule,
          .weight_gradients = job.weight_gradients,
          .memory_limit = job.limit,
          .costs = job.costs,
          .count_bytes = true,
          .partition = "uniform"};
}

/// Micro-batches of four and of three rows.
AutotuneOptions sample() { return quick(torch::randn({23, 8}), torch::randn({23, 72})); }

PipelineOptions decided(World& world, Cell& network, const PipelineOptions& options) {
  return autotune(world, network, squared_error, options, sample());
}

std::vector<RankPeak> peaks_of(World& world, Cell& network, const PipelineOptions& options) {
  Pipeline pipeline(world, network, squared_error, options);
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 1e-3); });
  const AutotuneOptions batch = sample();
  for (int step = 0; step < 3; ++step) pipeline.train_step(batch.sample, batch.sample_targets).wait();
  return Profiler(pipeline).peaks();
}

TEST(MeasuredBytes, predict_the_peaks_of_a_run) {
  for (const char* schedule : {"sequential", "gpipe", "1f1b", "zb-h1", "zb-auto", "zb-v", "v-half", "interleaved"}) {
    const Job job{.schedule = schedule};
    World world({.stages = job.ranks});
    Uneven network;
    const PipelineOptions options = decided(world, network, options_of(job));
    Pipeline pipeline(world, network, squared_error, options);
    const std::vector<double> predicted = peak_activation_bytes(pipeline.schedule(), *options.costs);
    for (const RankPeak& peak : peaks_of(world, network, options)) {
      const double bytes = predicted[static_cast<std::size_t>(peak.rank.value())];
      EXPECT_LE(static_cast<double>(peak.measured_bytes), bytes) << schedule << " rank " << peak.rank.value();
      EXPECT_GE(static_cast<double>(peak.measured_bytes), 0.7 * bytes) << schedule << " rank " << peak.rank.value();
    }
  }
}

/// The largest activations of one micro-batch on a stage.
double largest_stage(World& world, Cell& network, const Job& job) {
  const PipelineOptions options = decided(world, network, options_of(job));
  return *std::max_element(options.costs->activation_bytes.begin(), options.costs->activation_bytes.end());
}

TEST(MemoryLimitInBytes, is_kept_by_a_schedule_that_adapts) {
  World world({.stages = 4});
  Uneven network;
  Job job{.schedule = "zb-auto", .ranks = 4, .micro_batches = 8};
  const double one = largest_stage(world, network, job);
  int live = 0;
  for (const double contexts : {1.0, 2.0, 3.5, 6.0}) {
    const BytesPerRank limit{static_cast<std::int64_t>(std::ceil(contexts * one))};
    job.limit = limit;
    const PipelineOptions options = decided(world, network, options_of(job));
    int most = 0;
    for (const RankPeak& peak : peaks_of(world, network, options)) {
      EXPECT_LE(peak.measured_bytes, limit.bytes) << contexts << " rank " << peak.rank.value();
      EXPECT_EQ(peak.measured, peak.predicted);
      most = std::max(most, peak.measured);
    }
    EXPECT_GT(most, live) << "more memory is used: " << contexts;
    live = most;
  }
}

TEST(MemoryLimitInBytes, is_kept_by_fused_weight_gradients) {
  World world({.stages = 2});
  Uneven network;
  Job job{.micro_batches = 8, .weight_gradients = WeightGradients::fused};
  const BytesPerRank limit{static_cast<std::int64_t>(3 * largest_stage(world, network, job))};
  job.limit = limit;
  const PipelineOptions options = decided(world, network, options_of(job));
  for (const RankPeak& peak : peaks_of(world, network, options)) {
    EXPECT_LE(peak.measured_bytes, limit.bytes);
    EXPECT_GE(peak.measured, 3);
  }
}

TEST(MemoryLimitInBytes, refuses_a_schedule_that_needs_more) {
  World world({.stages = 2});
  Uneven network;
  Job job{.schedule = "gpipe"};
  job.limit = BytesPerRank{static_cast<std::int64_t>(largest_stage(world, network, job))};
  const PipelineOptions options = decided(world, network, options_of(job));
  const std::string complaint = error_text<ConfigError>([&] { peaks_of(world, network, options); });
  EXPECT_TRUE(says(complaint, "of activations that schedule 'gpipe' holds on rank", "set a limit of ")) << complaint;
  const std::string ask = "set a limit of ";
  const std::string sufficient = complaint.substr(complaint.find(ask) + ask.size());
  job.limit = parse_memory_limit(sufficient.substr(0, sufficient.find(' ')));
  const PipelineOptions enough = decided(world, network, options_of(job));
  for (const RankPeak& peak : peaks_of(world, network, enough))
    EXPECT_LE(peak.measured_bytes, std::get<BytesPerRank>(job.limit).bytes);
}

TEST(MemoryLimitInBytes, needs_bytes_that_are_measured_or_given) {
  World world({.stages = 2});
  Uneven network;
  Job job;
  EXPECT_TRUE(needs_measuring(options_of(job)));
  EXPECT_TRUE(says(error_text<ConfigError>([&] { Pipeline(world, network, squared_error, options_of(job)); }),
                   "the bytes of a micro-batch's activations are not known"));
  EXPECT_TRUE(says(error_text<ConfigError>([&] { autotune(world, network, squared_error, options_of(job), {}); }),
                   "pass autotune() a batch with its targets"));
  job.costs = StageCosts::unit();
  job.costs->activation_bytes = {1000, 2000};
  EXPECT_FALSE(needs_measuring(options_of(job)));
  EXPECT_NO_THROW(Pipeline(world, network, squared_error, options_of(job)));
  job.limit = BytesPerRank{1500};
  EXPECT_TRUE(says(error_text<ConfigError>([&] { Pipeline(world, network, squared_error, options_of(job)); }),
                   "less than the 2000B of activations", "rank"));
  job.costs->activation_bytes = {1000, 2000, 3000};
  EXPECT_THROW(Pipeline(world, network, squared_error, options_of(job)), ConfigError);
}

TEST(MemoryLimitInBytes, is_kept_by_what_auto_chooses) {
  for (const int replicas : {1, 2}) {
    World world({.stages = 2, .replicas = replicas});
    Uneven network;
    const double one = largest_stage(world, network, {.ranks = 2, .replicas = replicas, .micro_batches = 4});
    PipelineOptions options = options_of({.schedule = "auto", .micro_batches = 4});
    options.partition = "parameters";
    options.weight_gradients = WeightGradients::automatic;
    const BytesPerRank limit{static_cast<std::int64_t>(3 * one)};
    options.memory_limit = limit;
    const AutoChoice choice = autotune_with_reasons(world, network, squared_error, options, sample());
    EXPECT_TRUE(is_within_limit(*choice.options.custom, limit, *choice.options.costs));
    for (const RankPeak& peak : peaks_of(world, network, choice.options))
      EXPECT_LE(peak.measured_bytes, limit.bytes) << "rank " << peak.rank.value();
    EXPECT_TRUE(std::any_of(choice.planned->candidates.begin(), choice.planned->candidates.end(),
                            [](const Candidate& candidate) { return !candidate.fits; }));
    options.memory_limit = BytesPerRank{1};
    EXPECT_TRUE(says(error_text<ScheduleError>([&] { decided(world, network, options); }),
                     "no schedule stays within a memory limit of 1B of activations per rank"));
  }
}

}  // namespace
}  // namespace penstock::test::measured_bytes_test
