#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/cli/body_verbs.h"
#include "penstock/cli/job_flags.h"
#include "penstock/cli/text_file.h"
#include "penstock/trace/trace.h"

namespace penstock {
namespace {

struct BenchFlags {
  JobFlags job;
  std::int64_t steps = 20;
  std::int64_t warm_up = 5;
  std::string json;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// One step at a time, from the call to the end of the update: milliseconds each.
std::vector<double> time_steps(Pipeline& pipeline, const BenchFlags& flags) {
  // Random inputs, the same on every process.
  torch::manual_seed(static_cast<std::int64_t>(flags.job.seed));
  const torch::Tensor inputs = torch::randn({flags.job.batch_size, 1, 28, 28});
  const torch::Tensor targets = torch::randint(0, 10, {flags.job.batch_size}, torch::kInt64);
  std::vector<double> milliseconds;
  for (std::int64_t step = -flags.warm_up; step < flags.steps; ++step) {
    if (step == 0) pipeline.clear_trace();
    const auto begin = std::chrono::steady_clock::now();
    pipeline.train_step(inputs.narrow(0, 0, inputs.size(0)), targets).wait();
    if (step >= 0)
      milliseconds.push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  return milliseconds;
}

int bench_step(const BenchFlags& flags) {
  check_batch_size(flags.job);
  require<ConfigError>(flags.steps >= 1, "steps = ", flags.steps, ", but a median needs at least 1");
  require<ConfigError>(flags.warm_up >= 0, "warm-up = ", flags.warm_up, ", but it takes 0 steps or more");
  if (!flags.json.empty()) require_place_for(flags.json);
  auto model = make_model(flags.job);
  const OptimizerFactory optimizer = make_optimizer(flags.job);
  World world(world_options(flags.job));
  require_full_steps(flags.job, world);
  Pipeline pipeline(world, *model, cross_entropy, pipeline_options(flags.job));
  pipeline.optimize_with(optimizer);
  const std::vector<double> times = time_steps(pipeline, flags);
  const Trace trace = pipeline.trace();
  if (!world.is_main()) return 0;

  const Account step = account(trace);
  nlohmann::ordered_json result = {{"median_ms", median(times)},
                                   {"min_ms", *std::min_element(times.begin(), times.end())},
                                   {"steps", flags.steps},
                                   {"predicted_ms", step.predicted_ms},
                                   {"bubble_predicted", step.bubble_predicted},
                                   {"bubble_measured", step.bubble_measured}};
  result.update(settings_of(flags.job, pipeline));
  if (!flags.json.empty()) write_text(flags.json, result.dump() + "\n");
  (flags.json == "-" ? std::cerr : std::cout)
      << banner(flags.job, pipeline) << "\n"
      << "median " << result["median_ms"] << " ms, min " << result["min_ms"] << " ms over " << flags.steps << " steps\n"
      << to_table(step);
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("bench", "measure: bench step");
  verb->require_subcommand(1);
  CLI::App* step = verb->add_subcommand("step", "time of one training step on random inputs, measured and predicted");
  auto flags = std::make_shared<BenchFlags>();
  flags->job.add_to(*step);
  step->add_option("--steps", flags->steps, "measured steps")->capture_default_str();
  step->add_option("--warm-up", flags->warm_up, "steps before them that do not count")->capture_default_str();
  step->add_option("--json", flags->json, "write one JSON object to this file or - (stdout)");
  step->footer("Example:\n  penstock bench step --hidden 1024x8 --batch-size 128 --micro-batches 8 --stages 2 "
               "--json -");
  step->callback([flags, &exit_code] { exit_code = run_verb([&] { return bench_step(*flags); }); });
}

}  // namespace penstock
