#include <algorithm>
#include <fstream>
#include <iostream>
#include <set>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/checkpoint/checkpoint.h"
#include "penstock/cli/command_line_check.h"
#include "penstock/cli/config_file.h"
#include "penstock/cli/job.h"
#include "penstock/cli/text_file.h"
#include "penstock/cli/value_flags.h"
#include "penstock/cli/verbs.h"
#include "penstock/pipeline/profiler.h"
#include "penstock/trace/trace.h"

namespace penstock::cli {
namespace {

struct BenchFlags {
  JobFlags job;
  std::int64_t steps = 20;
  std::int64_t warm_up = 5;
  std::string json;
  std::string save_start;
  bool memory = false;
};

/// Defaults for measuring steps: no dropout, an untied head, and a low learning rate, so that training on a random
/// batch stays stable.
void take_bench_defaults(JobFlags& job) {
  job.network.defaults = {.dropout = 0, .head = "own"};
  job.learning_rate = 1e-3;
}

struct Steps {
  std::vector<double> milliseconds;  // per step, without the warm-up
  std::vector<double> losses;        // per step, with the warm-up
};

/// Measures steps one at a time, each from the call to the end of the update.
Steps time_steps(Pipeline& pipeline, const Batch& batch, const BenchFlags& flags) {
  Steps steps;
  for (std::int64_t step = -flags.warm_up; step < flags.steps; ++step) {
    if (step == 0) Profiler(pipeline).clear();
    const std::int64_t begin = now_ns();
    const StepResult result = pipeline.train_step(batch.inputs[0].narrow(0, 0, batch.inputs[0].size(0)), batch.targets);
    result.wait();
    const double time_ms = ms_since(begin);
    if (step >= 0) steps.milliseconds.push_back(time_ms);
    steps.losses.push_back(result.loss());
  }
  return steps;
}

/// Writes the data with which another program can run the same steps. Collective.
void save_start(Pipeline& pipeline, const Batch& batch, const std::string& path) {
  if (path.empty()) return;
  StateDict tensors = pipeline.state_dict();
  if (!pipeline.world().is_main()) return;
  tensors.insert("batch.inputs", batch.inputs);
  tensors.insert("batch.targets", batch.targets);
  write_safetensors(path, {std::move(tensors)});
}

/// The memory of the ranks, one number each in rank order, before and after the steps.
nlohmann::ordered_json memory_of(const std::vector<RankPeak>& before, const std::vector<RankPeak>& after) {
  const auto each = [](const std::vector<RankPeak>& peaks, auto number) {
    nlohmann::ordered_json numbers;
    for (const RankPeak& peak : peaks) numbers.push_back(peak.*number);
    return numbers;
  };
  return {{"activations_predicted", each(after, &RankPeak::predicted)},
          {"activations_measured", each(after, &RankPeak::measured)},
          {"activation_bytes_predicted", each(after, &RankPeak::predicted_bytes)},
          {"activation_bytes_measured", each(after, &RankPeak::measured_bytes)},
          {"optimizer_bytes", each(after, &RankPeak::optimizer_bytes)},
          {"process_bytes_before", each(before, &RankPeak::resident_bytes)},
          {"process_bytes_peak", each(after, &RankPeak::peak_resident_bytes)}};
}

int bench_step(BenchFlags& flags) {
  settle(flags.job);
  require<ConfigError>(flags.steps >= 1, "steps = ", flags.steps, ", but a median needs at least 1");
  require<ConfigError>(!flags.memory || flags.steps + flags.warm_up >= 2, "--memory counts from the second step on, ",
                       "but steps + warm-up = ", flags.steps + flags.warm_up, ": ask for at least 2");
  require<ConfigError>(flags.warm_up >= 0, "warm-up = ", flags.warm_up, ", but it takes 0 steps or more");
  for (const std::string* path : {&flags.json, &flags.save_start})
    if (!path->empty()) require_place_for(*path);
  Job job(flags.job, Use::train_full_steps);
  const Batch batch = random_batch(flags.job.network, flags.job.batch_size, flags.job.pipeline.seed);
  const auto pipeline = job.make_pipeline({.sample = [&] { return batch; }, .count_bytes = flags.memory});
  save_start(*pipeline, batch, flags.save_start);
  std::vector<RankPeak> before, after;
  if (flags.memory) before = Profiler(*pipeline).peaks();
  const Steps steps = time_steps(*pipeline, batch, flags);
  if (flags.memory) after = Profiler(*pipeline).peaks();
  const std::vector<double>& times = steps.milliseconds;
  const Trace trace = Profiler(*pipeline).trace();
  if (!job.world().is_main()) return 0;

  const Account step = account(trace);
  nlohmann::ordered_json result = {{"median_ms", median(times)},
                                   {"min_ms", *std::min_element(times.begin(), times.end())},
                                   {"steps", flags.steps},
                                   {"predicted_ms", step.predicted_ms},
                                   {"bubble_predicted", step.bubble_predicted},
                                   {"bubble_measured", step.bubble_measured}};
  result.update(settings_of(flags.job, *pipeline));
  if (flags.memory) result.update(memory_of(before, after));
  result["step_ms"] = times;
  result["losses"] = steps.losses;
  const std::string line = json_text(result) + "\n";
  if (!flags.json.empty()) write_text(flags.json, line);
  (flags.json == "-" ? std::cerr : std::cout)
      << banner(flags.job, *pipeline) << "\n"
      << "median " << result["median_ms"] << " ms, min " << result["min_ms"] << " ms over " << flags.steps << " steps\n"
      << to_table(step);
  return 0;
}

struct ScheduleFlags {
  BenchFlags bench;
  std::string format = "grid";
  std::string output = "-";
};

/// The largest number of micro-batches of a rank between F and B or W, in the order of the instructions of the last
/// step.
double most_live(const Trace& trace) {
  double most = 0;
  for (const auto& steps : trace.ranks) {
    int live = 0, peak = 0;
    std::set<StageId> stages;
    for (const Span& span : steps.back().spans) {
      const Instruction& instruction = span.instruction;
      if (instruction.op() == Op::forward) peak = std::max(peak, ++live);
      if (instruction.op() == Op::backward) --live;
      if (instruction.op() == Op::weight_grad) live -= instruction.micro_batch_count();
      if (is_compute(instruction.op())) stages.insert(instruction.stage());
    }
    most = std::max(most, static_cast<double>(peak) / static_cast<double>(stages.size()));
  }
  return most;
}

/// Trains with the schedule of the flags and returns its figures. Unset on processes other than the main one.
std::optional<StepFigures> measured_figures(Job& job, const BenchFlags& flags) {
  const Batch batch = random_batch(flags.job.network, flags.job.batch_size, flags.job.pipeline.seed);
  const auto pipeline = job.make_pipeline({.sample = [&] { return batch; }});
  time_steps(*pipeline, batch, flags);
  const Trace trace = Profiler(*pipeline).trace();
  if (!job.world().is_main()) return std::nullopt;

  const Account step = account(trace);
  StepFigures figures;
  figures.bubble_span = step.bubble_span_measured;
  figures.bubble_makespan = step.bubble_measured;
  figures.live = most_live(trace);
  for (const auto& steps : trace.ranks)
    figures.messages += std::count_if(steps.back().spans.begin(), steps.back().spans.end(),
                                      [](const Span& span) { return is_send(span.instruction.op()); });
  return figures;
}

int bench_schedules(ScheduleFlags& flags) {
  JobFlags& settings = flags.bench.job;
  settle(settings);
  require<ConfigError>(settings.pipeline.schedule.empty() && settings.plan.empty() && settings.pipeline.chunks == 0,
                       "bench schedules runs them all: leave --schedule, --chunks and --plan out");
  Job job(settings, Use::train_full_steps);
  std::vector<TableRow> rows = schedule_table({settings.world.stages, settings.pipeline.micro_batches, {}});
  for (TableRow& row : rows) {
    if (!trains(find_generator(row.schedule))) continue;
    settings.pipeline.schedule = row.schedule;
    row.measured = measured_figures(job, flags.bench);
  }
  if (job.world().is_main()) write_text(flags.output, flags.format == "markdown" ? to_markdown(rows) : to_table(rows));
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("bench", "measure: bench step, bench schedules");
  verb->require_subcommand(1);
  CLI::App* step = verb->add_subcommand("step", "time of one training step on random inputs, measured and predicted");
  auto flags = std::make_shared<BenchFlags>();
  take_bench_defaults(flags->job);
  flags->job.add_to(*step);
  flags->job.add_tuning_to(*step);
  in_theme(*step, "Output");
  step->add_option("--steps", flags->steps, "measured steps")->capture_default_str();
  step->add_option("--warm-up", flags->warm_up, "steps before them that are not measured")->capture_default_str();
  step->add_option("--json", flags->json, "write one JSON object to this file or - (stdout)");
  step->add_option("--save-start", flags->save_start,
                   "before the first step, write a .safetensors file: every parameter and buffer by name, batch.inputs "
                   "and batch.targets");
  step->add_flag(
      "--memory", flags->memory,
      "also measure the bytes of live activations and of the optimiser's state per rank, and the processes' physical "
      "memory; slows the steps down");
  step->footer(
      "Example:\n  penstock bench step --hidden 1024x8 --batch-size 128 --micro-batches 8 --stages 2 "
      "--json -");
  add_config_flags(*step);
  set_work(*step, exit_code, [flags] { return bench_step(*flags); });

  CLI::App* all = verb->add_subcommand("schedules", "every schedule on one network: bound, simulation and measurement");
  auto schedules = std::make_shared<ScheduleFlags>();
  take_bench_defaults(schedules->bench.job);
  schedules->bench.job.add_to(*all);
  schedules->bench.job.add_tuning_to(*all);
  in_theme(*all, "Output");
  all->add_option("--steps", schedules->bench.steps, "measured steps for each")->capture_default_str();
  all->add_option("--warm-up", schedules->bench.warm_up, "steps before them that are not measured")
      ->capture_default_str();
  add_choice(*all, "--format", schedules->format, {"grid", "markdown"}, "grid or markdown");
  all->add_option("--output", schedules->output, "where to write; - is standard output")->capture_default_str();
  all->footer("Example:\n  penstock bench schedules --hidden 512x15 --batch-size 256 --micro-batches 8 --stages 2");
  set_work(*all, exit_code, [schedules] { return bench_schedules(*schedules); });
}

}  // namespace penstock::cli
