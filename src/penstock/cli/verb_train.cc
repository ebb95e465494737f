#include <fstream>
#include <iostream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/cli/body_verbs.h"
#include "penstock/cli/job_flags.h"
#include "penstock/cli/text_file.h"
#include "penstock/data/data.h"
#include "penstock/trace/trace.h"
#include "penstock/train/train.h"
#include "penstock/transport/launch_environment.h"

namespace penstock {
namespace {

struct TrainFlags {
  JobFlags job;
  std::string data;
  std::int64_t epochs = 1;
  std::int64_t steps = 0;
  bool shuffle = true;
  bool drop_last = false;
  std::int64_t log_every = 10;
  std::int64_t evaluate_every = 1;
  std::string json;
  std::string trace;
  std::string svg;
  bool report = false;
};

/// --data, else $PENSTOCK_DATA, else what the repository ships.
std::string data_directory(const TrainFlags& flags) {
  if (!flags.data.empty()) return flags.data;
  const char* environment = std::getenv("PENSTOCK_DATA");
  return environment ? environment : "data/mnist";
}

/// mpirun gives its processes a terminal of its own even where its output goes to a file: no telling from here.
bool shows_to_a_person() { return isatty(STDOUT_FILENO) && launched_as().kind == LaunchedAs::Kind::alone; }

void show_report(std::ostream& out, const Pipeline& pipeline, const Trace& trace) {
  out << "\nschedule " << pipeline.options().schedule << ", a column per unit of time:\n"
      << board(pipeline.schedule()) << "\nwhere a step's time went:\n"
      << to_table(account(trace));
}

int train(const TrainFlags& flags) {
  const bool json_on_stdout = flags.json == "-";
  std::ostream& out = json_on_stdout ? std::cerr : std::cout;
  require<ConfigError>(flags.job.batch_size >= 1, "batch-size = ", flags.job.batch_size, ", but a batch has at least 1 sample");
  require<ConfigError>(flags.steps >= 0, "steps = ", flags.steps, ", but training takes at least 1");

  auto model = make_model(flags.job);
  const OptimizerFactory optimizer = make_optimizer(flags.job);
  TrainerOptions options;
  options.epochs = flags.epochs;
  options.evaluate_every = flags.evaluate_every;
  if (flags.steps > 0) options.max_steps = flags.steps;

  World world(world_options(flags.job));
  if (world.is_main()) log(LogLevel::info, banner(flags.job, world));
  Pipeline pipeline(world, *model, cross_entropy, pipeline_options(flags.job));
  if (world.is_main())
    for (const std::string& line : pipeline.describe_stages()) log(LogLevel::info, line);
  pipeline.optimize_with(optimizer);
  Trainer trainer(pipeline, options);

  LoaderOptions reading;
  reading.batch_size = flags.job.batch_size;
  reading.shuffle = flags.shuffle;
  reading.seed = flags.job.seed;
  reading.drop_last = flags.drop_last;
  reading = for_this_process(pipeline, reading);
  Loader train_set(load_mnist(data_directory(flags), MnistPart::train), reading);
  reading.shuffle = reading.drop_last = false;
  std::optional<Loader> test_set;
  const bool evaluates = flags.evaluate_every > 0 && flags.steps == 0;
  if (evaluates) test_set.emplace(load_mnist(data_directory(flags), MnistPart::test), reading);

  std::ofstream json_file;
  if (world.is_main()) {
    trainer.add_hook(console_hook(out, {.log_every = flags.log_every, .is_terminal = !json_on_stdout && shows_to_a_person()}));
    if (json_on_stdout) {
      trainer.add_hook(json_hook(std::cout));
    } else if (!flags.json.empty()) {
      json_file.open(flags.json);
      require<ConfigError>(json_file.is_open(), "--json ", flags.json, " cannot be written");
      trainer.add_hook(json_hook(json_file));
    }
  }
  trainer.fit(train_set, test_set ? &*test_set : nullptr);

  if (!flags.report && flags.trace.empty() && flags.svg.empty()) return 0;
  const Trace trace = pipeline.trace();
  if (!world.is_main()) return 0;
  if (flags.report) show_report(out, pipeline, trace);
  if (!flags.trace.empty()) {
    write_text(flags.trace, write_trace(trace));
    out << "\ntrace of the last steps: " << flags.trace << " (open it at https://ui.perfetto.dev)\n";
  }
  if (!flags.svg.empty()) {
    write_text(flags.svg, step_svg(trace));
    out << "picture of one step: " << flags.svg << "\n";
  }
  return 0;
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("train", "train a model as a pipeline");
  auto flags = std::make_shared<TrainFlags>();
  flags->job.add_to(*verb);
  verb->add_option("--data", flags->data, "directory of the MNIST files (default: $PENSTOCK_DATA, else data/mnist)");
  verb->add_option("--epochs", flags->epochs, "passes over the training set")->capture_default_str();
  verb->add_option("--steps", flags->steps, "stop after so many steps; then there is no evaluation (default: no limit)");
  verb->add_flag("--shuffle,!--no-shuffle", flags->shuffle, "order of samples by seed and epoch, or as stored");
  verb->add_flag("--drop-last", flags->drop_last, "leave out a short last batch");
  verb->add_option("--log-every", flags->log_every, "steps between loss lines; 0: none")->capture_default_str();
  verb->add_option("--eval-every", flags->evaluate_every, "epochs between evaluations on the test set; 0: never")->capture_default_str();
  verb->add_option("--json", flags->json, "one JSON object a line for every step, to this file or - (stdout)");
  verb->add_option("--trace", flags->trace, "write the last steps as Chrome/Perfetto JSON");
  verb->add_option("--svg", flags->svg, "write a picture of one step, predicted over measured");
  verb->add_flag("--report", flags->report, "at the end, show the schedule and where a step's time went");
  verb->footer("Example:\n  penstock train --model mlp --hidden 512,512 --data data/mnist --stages 2 --micro-batches 4\n"
               "  mpirun -n 2 penstock train --stages 2 --data data/mnist");
  verb->callback([flags, &exit_code] { exit_code = train(*flags); });
}

}  // namespace penstock
