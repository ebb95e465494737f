#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <set>
#include <sstream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/base/stop_signals.h"
#include "penstock/checkpoint/export_weights.h"
#include "penstock/cli/checkpoint_flags.h"
#include "penstock/cli/command_line_check.h"
#include "penstock/cli/config_file.h"
#include "penstock/cli/data_flags.h"
#include "penstock/cli/dump.h"
#include "penstock/cli/job.h"
#include "penstock/cli/text_file.h"
#include "penstock/cli/value_flags.h"
#include "penstock/cli/verbs.h"
#include "penstock/cli/weight_file.h"
#include "penstock/pipeline/profiler.h"
#include "penstock/plan/plan.h"
#include "penstock/trace/trace.h"
#include "penstock/train/train.h"
#include "penstock/transport/joining/launch_environment.h"

namespace penstock::cli {
namespace {

struct TrainFlags {
  JobFlags job;
  DataFlags data;
  CheckpointFlags checkpoints;
  std::string settings;  // to be stored with checkpoints
  /// Names the flags whose values differ from those in such a text, among those that decide about the numbers.
  std::function<std::string(const std::string&)> changes_since = nullptr;
  std::optional<std::int64_t> epochs;
  std::optional<std::int64_t> steps;
  std::int64_t log_every = 10;
  std::optional<std::int64_t> evaluate_every;
  std::string json;
  std::string tensorboard;
  std::string trace;
  std::string svg;
  bool report = false;
  std::string dump;
  bool verbose = false;
  std::string log_style = "steps";
  std::string log_ranks = "auto";
  LogLevel log_level = LogLevel::info;
  OnNan on_nan = OnNan::stop;
  std::optional<std::int64_t> patience;
  std::string weights;
  std::string save_weights;
  bool trained_only = false;
  LearningRatePlan learning_rate = {};  // its rate is --lr

  /// --steps is for short runs, which are evaluated only on request.
  bool evaluates() const { return evaluate_every.value_or(steps ? 0 : 1) > 0; }
  bool shows_steps() const { return report || !trace.empty() || !svg.empty(); }
  /// Whether a signal ends the training after its step, because something is then saved.
  bool ends_politely() const { return checkpoints.writes() || !save_weights.empty(); }
};

/// The flags on which the numbers depend, beside those that the checkpoint itself records and the network's shape.
std::set<std::string> decisive_flags(const TrainFlags& flags) {
  std::set<std::string> names = {"augment",   "batch-size", "dataset",     "drop-last", "dropout",       "freeze",
                                 "lr",        "lr-by",      "lr-schedule", "momentum",  "norm-momentum", "normalize",
                                 "optimizer", "shuffle",    "unfreeze",    "warmup",    "weight-decay"};
  for_each_setting(flags.job.pipeline, [&](const Setting& setting, const auto&) {
    if (setting.changes_numbers) names.insert(setting.name);
  });
  if (flags.learning_rate.schedule != "constant") names.insert({"epochs", "steps"});  // where the rate falls
  return names;
}

void check(const TrainFlags& flags) {
  const std::int64_t steps = flags.steps.value_or(1), epochs = flags.epochs.value_or(1);
  require<ConfigError>(steps >= 1, "steps = ", steps,
                       ", but training takes at least 1: without --steps there is no limit");
  require<ConfigError>(epochs >= 1, "epochs = ", epochs, ", but training takes at least 1");
  require<ConfigError>(flags.log_every >= 0, "log-every = ", flags.log_every,
                       ": pass a number of steps, or 0 for never");
  require<ConfigError>(flags.evaluate_every.value_or(1) >= 0, "eval-every = ", flags.evaluate_every.value_or(1),
                       ": pass a number of epochs, or 0 for never");
  require<ConfigError>(flags.log_style != "monitor" || flags.on_nan != OnNan::go_on,
                       "--log-style monitor stops at an invalid loss: leave --on-nan go-on out, or take another style");
  require<ConfigError>(flags.on_nan != OnNan::rollback || flags.checkpoints.writes(),
                       "--on-nan rollback returns to the last checkpoint: pass --checkpoint DIR too");
  if (launched(flags.job).rank != 0) return;
  for (const std::string* path : {&flags.json, &flags.trace, &flags.svg, &flags.save_weights})
    if (!path->empty()) require_place_for(*path);
  if (!flags.save_weights.empty()) require_outside_of_checkpoints(flags.save_weights);
  if (!flags.dump.empty()) require_dump_place(flags.dump);
}

/// Ends the training because of a signal, which is noticed while `signals` exists, or of --max-time after `begin_ns`.
std::function<std::optional<StopRequest>()> stop_when(const TrainFlags& flags, std::int64_t begin_ns) {
  if (!flags.ends_politely()) return nullptr;
  return [longest = flags.checkpoints.longest_time(), text = flags.checkpoints.max_time,
          begin_ns]() -> std::optional<StopRequest> {
    if (const auto signal = StopSignals::received()) return StopRequest{say("signal ", *signal), *signal};
    if (longest && s_since(begin_ns) >= *longest) return StopRequest{say("--max-time ", text, " is over")};
    return std::nullopt;
  };
}

TrainerOptions trainer_options(const TrainFlags& flags, std::int64_t begin_ns) {
  TrainerOptions options;
  // An epoch has at least one step.
  options.epochs = flags.epochs.value_or(flags.steps.value_or(1));
  options.max_steps = flags.steps;
  options.evaluate_every = flags.evaluate_every.value_or(1);
  options.on_nan = flags.on_nan;
  options.measure = !flags.json.empty() || !flags.tensorboard.empty();
  options.stop_when = stop_when(flags, begin_ns);
  options.learning_rate = flags.learning_rate;
  options.learning_rate->rate = flags.job.learning_rate;
  return options;
}

/// The console output of a process.
void add_lines(Trainer& trainer, const TrainFlags& flags, std::ostream& out, bool with_bar) {
  const bool is_steps = flags.log_style == "steps", with_times = flags.log_style == "times";
  const std::int64_t every = is_steps || with_times ? flags.log_every : 0;
  const bool is_epochs = flags.log_style == "epochs", is_monitor = flags.log_style == "monitor";
  if (is_epochs) trainer.add_hook(epoch_log_hook(out));
  if (is_monitor && flags.log_every > 0) trainer.add_hook(loss_monitor_hook(out, flags.log_every));
  if (!is_epochs || with_bar)
    trainer.add_hook(console_hook(out, {.log_every = every,
                                        .is_terminal = with_bar,
                                        .with_times = with_times,
                                        .tests = !is_epochs,
                                        .first_epoch = is_monitor ? 1 : 0}));
}

std::unique_ptr<CheckpointHook> checkpoint_hook(const TrainFlags& flags, const Pipeline& pipeline,
                                                const std::optional<Vocabulary>& vocabulary) {
  CheckpointOptions options{.folder = flags.checkpoints.folder,
                            .keep = flags.checkpoints.keep.value_or(2),
                            .every = flags.checkpoints.interval(),
                            .texts = texts_of_run(flags.settings, pipeline),
                            .metadata = weight_metadata(flags.job.network, vocabulary),
                            .trained_only = flags.trained_only};
  options.on_saved = [](const CommittedCheckpoint& saved) {
    log(LogLevel::info, say("checkpoint step ", saved.step, " durable: ", saved.directory));
  };
  return std::make_unique<CheckpointHook>(std::move(options));
}

/// Reads the weights of --weights or of hf:DIR, which were not read because a checkpoint seemed to have them.
/// Collective.
void read_first_weights(const TrainFlags& flags, Pipeline& pipeline) {
  ModelFlags network = flags.job.network;
  network.has_other_weights = false;
  const auto source = flags.weights.empty() ? hf_weights(network) : read_weights(flags.weights, network).tensors;
  if (!source) return;
  for (auto& item : pipeline.local_state_dict()) {
    // Adapters that these weights do not have begin with their own initial values.
    if (hf::is_lora(item.key()) && !source->read(item.key()).defined()) continue;
    take_value(item.value(), *source, item.key());
  }
  pipeline.sync_ties();
}

/// Loads the checkpoint that --resume names. Collective.
void resume(const TrainFlags& given, const std::optional<RecordedRun>& recorded, Trainer& trainer) {
  const CheckpointFlags& flags = given.checkpoints;
  const bool is_main = trainer.pipeline().world().is_main();
  if (recorded && !recorded->settings.empty() && is_main)
    if (const std::string changes = given.changes_since(recorded->settings); !changes.empty())
      warn(say("the training goes on with other flags than it had: ", changes));
  if (trainer.resume(flags.source())) {
    freeze_parameters(given.job, trainer.pipeline());  // flags of this run, after what was frozen then
    if (is_main)
      log(LogLevel::info, say("resumed from ", flags.source(), " at step ", trainer.pipeline().training_steps()));
    return;
  }
  // Another one is known to be complete, so that its tensors are damaged.
  require<DataError>(flags.resume == resume_if_possible, "--resume ", flags.resume, ": every checkpoint is damaged");
  if (is_main) log(LogLevel::info, say("no complete checkpoint in ", flags.source(), ": training begins"));
  read_first_weights(given, trainer.pipeline());
}

/// The exit code of a training that ended before its goal.
int exit_code_of(const StopRequest& request) {
  return request.signal > 0 ? 128 + request.signal : static_cast<int>(ExitCode::unfinished);
}

/// Collective.
void show_parameters(const TrainFlags& flags, Pipeline& pipeline) {
  if (!flags.verbose) return;
  const auto state = pipeline.state_dict();
  if (!pipeline.world().is_main()) return;
  std::istringstream lines(parameters_text(pipeline, state));
  for (std::string line; std::getline(lines, line);) log(LogLevel::info, line);
}

void show_report(std::ostream& out, const Pipeline& pipeline, const Trace& trace) {
  out << "\nschedule " << pipeline.options().schedule << ", a column per unit of time:\n"
      << timeline_grid(pipeline.schedule()) << "\nwhere a step's time went:\n"
      << to_table(account(trace)) << advise(trace).sentence << "\n";
}

void show_steps(const TrainFlags& flags, std::ostream& out, const Pipeline& pipeline, const Trace& trace) {
  if (flags.report) show_report(out, pipeline, trace);
  if (!flags.trace.empty()) {
    write_text(flags.trace, write_trace(trace));
    if (flags.trace != "-")
      out << "\ntrace of the last steps: " << flags.trace << " (open it at https://ui.perfetto.dev)\n";
  }
  if (!flags.svg.empty()) {
    write_text(flags.svg, step_svg(trace));
    if (flags.svg != "-") out << "picture of one step: " << flags.svg << "\n";
  }
}

/// Reports where to find the weights of a training that has failed.
void report_no_weights(const TrainFlags& flags, const World& world) {
  if (flags.save_weights.empty() || !world.is_main()) return;
  const bool continues = flags.checkpoints.writes();
  warn(say("training failed, and --save-weights ", flags.save_weights, " is not written: ",
           continues ? "continue with --resume " + flags.checkpoints.folder : "pass --checkpoint DIR to keep states"));
}

/// Writes --save-weights. Fails in all processes if the main one cannot write. Collective.
void save_state(const TrainFlags& flags, Pipeline& pipeline, World& world,
                const std::optional<Vocabulary>& vocabulary) {
  world.run([&] {
    const auto state = pipeline.state_dict({.trained_only = flags.trained_only});
    if (world.is_main()) save_weights(flags.save_weights, state, weight_metadata(flags.job.network, vocabulary));
  });
}

int train(TrainFlags flags) {
  const std::int64_t begin_ns = now_ns();  // reading data and measuring layers count for --max-time
  flags.checkpoints.settle();
  const bool begins = !flags.checkpoints.resumes() || flags.checkpoints.resume == resume_if_possible;
  require<ConfigError>(
      flags.weights.empty() || begins || flags.trained_only, "--weights ", flags.weights, " and --resume ",
      flags.checkpoints.resume,
      " both say with which weights the training begins: pass one of them (--weights \"\" leaves out that "
      "of a config file)");
  require<ConfigError>(flags.job.network.adapter.empty() || begins, "--adapter ", flags.job.network.adapter,
                       " and --resume ", flags.checkpoints.resume,
                       " both say with which adapters the training begins: pass one of them");
  const auto recorded = recorded_run(flags.checkpoints);
  if (recorded) keep_recorded_bits(*recorded, flags.job);
  settle(flags.job);
  SavedWeights weights;
  if (!flags.weights.empty() && (!recorded || flags.trained_only))
    weights = read_weights(flags.weights, flags.job.network);
  if (recorded) {
    HeldTensors held = tensors_of(*recorded);
    if (flags.trained_only) held.elements = std::numeric_limits<double>::infinity();
    if (flags.trained_only) held.tensors = std::numeric_limits<std::int64_t>::max();
    weights.vocabulary = take_network(recorded->weight_metadata, held, flags.job.network);
    if (!lora_of(flags.job.network)) flags.job.network.has_other_weights |= recorded->has_all_weights;
  }
  check(flags);
  set_log_level(flags.log_level);
  const bool json_on_stdout = flags.json == "-";
  std::ostream& out = json_on_stdout ? std::cerr : std::cout;
  make_model(flags.job.network);  // a wrong size is reported before files are read
  DataSets sets = read_data(flags.data, flags.job.network, flags.evaluates());
  std::optional<Vocabulary> vocabulary;
  if (sets.text) {
    vocabulary = sets.text->vocabulary;
    require_same_vocabulary(recorded ? recorded->directory : flags.weights, weights, *vocabulary);
    flags.job.network.vocabulary = vocabulary->size();
  }

  flags.job.pipeline.inputs = flags.data.separate_documents ? 2 : 1;
  Job job(flags.job, flags.shows_steps() ? Use::train_full_steps : Use::train, weights.tensors);
  const LoaderOptions reading{.batch_size = flags.job.batch_size, .seed = flags.job.pipeline.seed};
  const auto pipeline =
      job.make_pipeline({.sample = [&] { return sample_of(sets, flags.data, flags.job.network, reading); }});
  Loaders loaders = make_loaders(std::move(sets), flags.data, flags.job.network, reading, *pipeline);
  World& world = job.world();
  Trainer trainer(*pipeline, trainer_options(flags, begin_ns));

  if (world.is_main() || flags.log_ranks == "all" || (flags.log_ranks == "auto" && world.should_log()))
    add_lines(trainer, flags, out, world.is_main() && !json_on_stdout && stdout_is_terminal());
  std::ofstream json_file;
  if (world.is_main()) {
    log(LogLevel::info, banner(flags.job, *pipeline));
    for (const std::string& line : describe_stages(*pipeline)) log(LogLevel::info, line);
    if (!flags.dump.empty()) dump(*pipeline, flags.dump);
    if (json_on_stdout) {
      trainer.add_hook(json_hook(std::cout));
    } else if (!flags.json.empty()) {
      if (recorded) {
        trainer.add_hook(continue_json(json_file, {flags.json, flags.checkpoints.continues_in_place()}));
      } else {
        json_file.open(flags.json);
        require<ConfigError>(json_file.is_open(), "--json ", flags.json, " cannot be opened for writing");
      }
      trainer.add_hook(json_hook(json_file));
    }
    if (!flags.tensorboard.empty()) trainer.add_hook(tensorboard_hook(flags.tensorboard));
  }
  show_parameters(flags, *pipeline);
  if (flags.patience) trainer.add_hook(std::make_unique<EarlyStopHook>(EarlyStop{.patience = *flags.patience}));
  if (flags.checkpoints.writes()) trainer.add_hook(checkpoint_hook(flags, *pipeline, vocabulary));
  if (flags.checkpoints.resumes()) resume(flags, recorded, trainer);
  // Until here a signal ends the process at once: there is nothing to save, and other ranks may never join.
  std::optional<StopSignals> signals;
  if (flags.ends_politely()) signals.emplace();
  try {
    trainer.fit(loaders.train, loaders.test ? &*loaders.test : nullptr);
    world.finish();
  } catch (const Failure&) {
    report_no_weights(flags, world);
    throw;
  }
  if (const auto& request = trainer.interrupted()) {
    const std::int64_t steps = pipeline->training_steps();
    std::string left = "; nothing is saved";  // an older file is worth more than weights without a step
    if (flags.checkpoints.writes()) {
      left = "; continue with --resume " + flags.checkpoints.folder;
    } else if (steps > 0) {
      save_state(flags, *pipeline, world, vocabulary);
      left = "; its weights are in " + flags.save_weights;
    }
    if (world.is_main())
      log(LogLevel::info, say("ended before its goal, after step ", steps, ": ", request->reason, left));
    if (!json_file.good()) warn(say("--json ", flags.json, " could not be written to its end"));
    return exit_code_of(*request);
  }
  if (trainer.stopped() && world.is_main()) log(LogLevel::info, "stopped early: " + *trainer.stopped());
  require<Failure>(json_file.good(), "--json ", flags.json, " could not be written to its end");
  if (!flags.save_weights.empty()) save_state(flags, *pipeline, world, vocabulary);

  if (!flags.shows_steps()) return 0;
  Trace trace = Profiler(*pipeline).trace();
  if (flags.job.layer_costs) note_costs(*flags.job.layer_costs, trace);
  if (flags.job.planned_ms) trace.settings[planned_ms_setting] = say(*flags.job.planned_ms);
  if (world.is_main()) show_steps(flags, out, *pipeline, trace);
  return 0;
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("train", "train a model as a pipeline");
  auto flags = std::make_shared<TrainFlags>();
  flags->job.add_network_to(*verb);
  verb->add_option("--weights", flags->weights,
                   "start from this .safetensors file; a file written by --save-weights also sets the network's flags "
                   "(default: initial weights from --seed)");
  flags->data.add_to(in_theme(*verb, "Data"));
  flags->job.add_training_to(*verb);
  verb->add_option("--epochs", flags->epochs, "passes over the training set (default: 1, or what --steps needs)");
  verb->add_option("--steps", flags->steps,
                   "stop after this number of steps; evaluates only with --eval-every (default: no limit)");
  LearningRatePlan& rate = flags->learning_rate;
  add_choice(*verb, "--lr-schedule", rate.schedule, {"constant", "linear", "cosine"},
             "constant, linear (falls to 0) or cosine, after the warm-up");
  verb->add_option("--warmup", rate.warmup, "epochs (or steps) in which the learning rate rises to --lr")
      ->capture_default_str();
  add_choice(*verb, "--lr-by", rate.by_epoch, Choices<bool>{{"epoch", true}, {"step", false}},
             "epoch or step: the unit of --lr-schedule and --warmup");
  verb->add_option("--eval-every", flags->evaluate_every,
                   "epochs between evaluations on the test set, and one after the last step; 0: never (default: 1, or "
                   "with --steps 0)");
  verb->add_option("--patience", flags->patience,
                   "stop after this number of consecutive evaluations without a lower test loss (default: never)");
  add_choice(*verb, "--on-nan", flags->on_nan,
             Choices<OnNan>{
                 {"stop", OnNan::stop}, {"skip", OnNan::skip}, {"rollback", OnNan::rollback}, {"go-on", OnNan::go_on}},
             "where a loss is not a number or infinite, before its update: stop with exit code 1 and name the "
             "layer; skip: leave the step out, at most 10 in a row; rollback: return to the last checkpoint and "
             "leave the batch out; go-on: update with it");
  flags->job.add_pipeline_to(*verb);
  flags->job.add_tuning_to(*verb);
  flags->checkpoints.add_to(*verb);

  in_theme(*verb, "Output");
  verb->add_option("--log-every", flags->log_every, "steps between loss lines; 0: none")->capture_default_str();
  add_choice(*verb, "--log-style", flags->log_style, {"steps", "times", "monitor", "epochs"},
             "steps: 'epoch: 0 step: 10, loss is ...'; times: with seconds per step, and each epoch's rate; "
             "monitor: counted from 1, each --log-every'th; epochs: '[Epoch 0 / Train]: Loss = ...' alone");
  add_choice(*verb, "--log-ranks", flags->log_ranks, {"auto", "main", "all"},
             "main: one process writes loss lines; all: every process does; auto: every process if each has its "
             "own log, from `penstock launch` or from mpirun's files of outputs, else one");
  add_choice(*verb, "--log-level", flags->log_level,
             Choices<LogLevel>{{"debug", LogLevel::debug},
                               {"info", LogLevel::info},
                               {"warning", LogLevel::warning},
                               {"error", LogLevel::error},
                               {"off", LogLevel::off}},
             "level of the messages on standard error");
  verb->add_flag("--verbose", flags->verbose, "print the number of parameters of each rank");
  verb->add_option(
      "--save-weights", flags->save_weights,
      "write the weights as a .safetensors file at the end and, without --checkpoint, when SIGTERM, SIGINT "
      "or SIGUSR1 ends the training");
  verb->add_flag(
      "--trained-only", flags->trained_only,
      "checkpoints and --save-weights without frozen parameters; --resume takes these from --weights, or as the model "
      "begins");
  verb->add_option("--json", flags->json, "one JSON object a line for every step, to this file or - (stdout)");
  verb->add_option("--tensorboard", flags->tensorboard,
                   "write the same numbers as an event file for TensorBoard into this directory");
  verb->add_option("--trace", flags->trace, "write the last steps as Chrome/Perfetto JSON");
  verb->add_option("--svg", flags->svg, "write a picture of one step, predicted over measured");
  verb->add_option(
      "--dump", flags->dump,
      "write the result of partitioning and scheduling to this directory: graph.txt, stages.txt, schedule.sched and "
      "schedule.svg");
  verb->add_flag("--report", flags->report, "at the end, show the schedule and where a step's time went");
  verb->footer(
      "Example:\n"
      "  penstock train --model mlp --hidden 512,512 --data data/mnist --stages 2 --micro-batches 4\n"
      "  penstock train --model resnet18 --stem cifar --width 16 --augment crop-flip --optimizer adam --lr 1e-3\n"
      "  penstock train --weights mnist.safetensors --data data/mnist --lr 0.001\n"
      "  penstock train --config run.toml --epochs 3\n"
      "  penstock train --data data/mnist --checkpoint run --checkpoint-every 1epochs\n"
      "  penstock train --resume run --stages 3\n"
      "  mpirun -n 2 penstock train --stages 2 --data data/mnist");
  add_config_flags(*verb);
  set_work(*verb, exit_code, [flags, verb] {
    flags->settings = config_text(*verb, {"resume", "max-time", "weights", "adapter"});
    flags->changes_since = [verb, flags = flags.get()](const std::string& stored) {
      return changed_flags(*verb, decisive_flags(*flags), stored);
    };
    return train(*flags);
  });
}

}  // namespace penstock::cli
