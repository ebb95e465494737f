#include "penstock/cli/job_flags.h"

#include <algorithm>
#include <cmath>

#include <torch/optim/rmsprop.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "penstock/autotune/autotune.h"
#include "penstock/autotune/choose.h"
#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/base/text.h"
#include "penstock/cli/command_line_check.h"
#include "penstock/cli/value_flags.h"
#include "penstock/plan/cluster.h"
#include "penstock/plan/plan.h"
#include "penstock/train/optimizers.h"
#include "penstock/world/device.h"

namespace penstock::cli {
namespace {

const Choices<Reduction> reductions = {{"mean", Reduction::mean}, {"sum", Reduction::sum}};

void require_finite(const char* flag, double value) {
  require<ConfigError>(std::isfinite(value), flag, " ", value, ": pass a finite number");
}

/// Returns an error message, or an empty string. CLI11's conversion to unsigned would turn -1 into a large number.
std::string is_not_negative(const std::string& text) {
  return text.starts_with('-') ? say(text, " is below 0") : std::string();
}

std::string auto_is_zero(std::string& count) {
  if (count == "auto") count = "0";
  return "";
}

int chunks_of(const Pipeline& pipeline) { return pipeline.schedule().stage_count() / pipeline.schedule().rank_count(); }

void settle_defaults(JobFlags& flags) {
  PipelineOptions& pipeline = flags.pipeline;
  const bool is_auto = pipeline.schedule == "auto";
  require<ConfigError>(is_auto || flags.weight_gradients != WeightGradients::automatic,
                       "--weight-gradients auto is found by measuring: pass --schedule auto, or choose stream "
                       "or fused");
  require<ConfigError>(is_auto || flags.cluster.empty(), "--cluster ", flags.cluster,
                       " says how fast ranks are, which schedule 'auto' uses: pass --schedule auto, or leave it out");
  if (!flags.weight_gradients) flags.weight_gradients = is_auto ? WeightGradients::automatic : WeightGradients::stream;
  // The instructions of a plan are fused already.
  if (!flags.planned) pipeline.weight_gradients = *flags.weight_gradients;
  const bool is_planned = flags.planned && !flags.planned->kernels.empty();
  const bool are_tuned = is_planned || (is_auto && has_cpu_kernels());
  pipeline.kernels = flags.kernels.value_or(are_tuned ? Kernels::tuned : Kernels::fixed);
  require_kernels(pipeline.kernels);
  if (flags.planned) pipeline.kernel_selection = flags.planned->kernels;
  if (pipeline.kernels == Kernels::fixed) pipeline.kernel_selection.clear();
}

void apply_stages(JobFlags& flags) {
  if (flags.world.stages != 0) return;
  const joining::LaunchedAs start = launched(flags);
  const int replicas = std::max(1, flags.world.replicas);
  require<ConfigError>(start.size % replicas == 0, "--stages auto: ", start.size,
                       start.size == 1 ? " process does not" : " processes do not", " divide into ", replicas,
                       " replicas: start a multiple of ", replicas, " (", start.start, " ", replicas, ")");
  flags.world.stages = start.size / replicas;
}

void apply_micro_batch_size(JobFlags& flags) {
  if (!flags.micro_batch_size) return;
  const WorldOptions& world = flags.world;
  const int processes = launched(flags).size;
  const int inferred = processes > 1 && world.stages > 0 ? processes / world.stages : 1;
  const int replicas = std::max(1, world.replicas > 0 ? world.replicas : inferred);
  const std::int64_t share = split(flags.batch_size, {.index = 0, .of = replicas}).size();
  const std::int64_t count = (share + *flags.micro_batch_size - 1) / *flags.micro_batch_size;
  flags.pipeline.micro_batches = static_cast<int>(std::max<std::int64_t>(1, count));
}

void apply_plan(JobFlags& flags) {
  if (flags.plan.empty()) return;
  flags.planned = read_file(flags.plan, read_plan);
  const Plan& plan = *flags.planned;
  if (plan.time_unit == "ms") flags.planned_ms = plan.prediction.makespan;
  flags.world.stages = plan.schedule.rank_count();
  int& replicas = flags.world.replicas;
  require<ConfigError>(plan.replicas == 1 || replicas == 0 || replicas == plan.replicas, flags.plan, " is for ",
                       plan.replicas, " replicas, and --replicas says ", replicas, ": leave --replicas out");
  if (plan.replicas > 1) replicas = plan.replicas;
  flags.weight_gradients = plan.weight_gradients;
  flags.pipeline.custom = plan.schedule;
  flags.pipeline.micro_batches = plan.schedule.micro_batches;
  flags.pipeline.partition = partition_of(plan);
}

void check_batch_size(const JobFlags& flags) {
  require<ConfigError>(flags.batch_size >= 1, "batch-size = ", flags.batch_size, ", but a batch has at least 1 sample");
}

}  // namespace

void JobFlags::add_to(CLI::App& app) {
  add_network_to(app);
  add_training_to(app);
  add_pipeline_to(app);
}

void JobFlags::add_network_to(CLI::App& app) { network.add_to(in_theme(app, "Model")); }

void JobFlags::add_training_to(CLI::App& app) {
  CLI::App* how = &in_theme(app, "Training");
  how->add_option("--batch-size", batch_size, "samples per step, over all replicas")->capture_default_str();
  add_choice(*how, "--optimizer", optimizer, {"sgd", "adam", "adamw", "rmsprop"}, "sgd, adam, adamw or rmsprop");
  how->add_option("--lr", learning_rate, "learning rate")->capture_default_str();
  how->add_option("--momentum", momentum, "momentum of sgd and rmsprop")->capture_default_str();
  how->add_option("--weight-decay", weight_decay, "weight decay; adamw decouples it from the gradient")
      ->capture_default_str();
  how->add_option("--freeze", freeze,
                  "parameters that do not train: full names, or the Cells or layers around them, with * for any "
                  "characters and ? for one")
      ->delimiter(',');
  how->add_option("--unfreeze", unfreeze, "parameters that train although --freeze names them, '*.bias' for example")
      ->delimiter(',');
  how->add_option("--clip-norm", pipeline.clip_norm, "scale gradients down to this global norm (default: no clipping)");
  LossReduction& loss = pipeline.loss_reduction;
  add_choice(*how, "--reduction", loss.reduction, reductions, "mean: over the batch; sum: of the micro-batches' means");
  add_choice(*how, "--replica-reduction", loss.replica_reduction, reductions,
             "mean: replicas do not change the loss and the gradients; sum: both are multiplied by the number of "
             "replicas");
  add_choice(*how, "--reported-loss", loss.reported_loss, reductions,
             "mean: over the batch; sum: of the micro-batches' means, averaged over replicas; gradients stay as they "
             "are (default: the loss whose gradients are applied)");
}

void JobFlags::add_pipeline_to(CLI::App& app) {
  const bool trains = app.get_option_no_throw("--lr") != nullptr;  // add_training_to was called before
  CLI::App* where = &in_theme(app, "Pipeline");
  std::vector<CLI::Option*> in_plan;  // options that a plan sets, too
  const auto add = [&](CLI::Option* option) { in_plan.push_back(option); };
  add(where
          ->add_option("--stages", world.stages,
                       "pipeline ranks p; auto: as many as there are processes, divided by --replicas")
          ->transform(CLI::Validator(auto_is_zero, ""))
          ->capture_default_str());
  add(where
          ->add_option("--micro-batches", pipeline.micro_batches,
                       "m: micro-batches per step and replica; auto: with schedule auto, the fastest of "
                       "p, 2p, 4p and 8p")
          ->transform(CLI::Validator(auto_is_zero, ""))
          ->capture_default_str());
  if (trains)
    add(where
            ->add_option("--micro-batch-size", micro_batch_size,
                         "largest number of samples of a micro-batch, as an alternative to --micro-batches")
            ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
            ->excludes(app.get_option("--micro-batches")));
  add(where->add_option("--schedule", pipeline.schedule,
                        "a generator (penstock schedule show --help lists them) or a .sched or CSV file "
                        "(default: 1f1b; with chunks interleaved)"));
  if (trains)
    add(where
            ->add_option("--cluster", cluster,
                         "with schedule auto: a file whose first devices, in its order, are the ranks; they may be "
                         "unequally fast (docs/cost_file.md#clusters)")
            ->type_name("FILE"));
  add(where->add_option("--chunks", pipeline.chunks, "v: stages per rank (default: the schedule's own)")
          ->check(CLI::Range(1, 4096)));
  add(add_weight_gradients(*where, weight_gradients,
                           "stream: micro-batch by micro-batch; fused: one product over all of them; changes the last "
                           "bits (default: stream; with schedule auto: auto, the faster of the two)"));
  add(add_memory_limit(*where, pipeline.memory_limit, " (default: the schedule's own bound)"));
  add(where
          ->add_option("--partition", pipeline.partition,
                       "parameters, uniform, time (measured on the first samples), or the first layer of each further "
                       "stage: layer3 or 4, or the Cell that begins with it")
          ->capture_default_str());
  CLI::Option* from_file = where->add_option("--plan", plan, "read these flags from a file written by penstock plan");
  for (CLI::Option* option : in_plan) from_file->excludes(option);
  where->add_option("--replicas", world.replicas,
                    "data-parallel copies of the pipeline (default: 1; under MPI, processes / stages)");
  if (trains) {
    where
        ->add_option("--zero", pipeline.zero, "1: replicas share the optimiser's state (ZeRO-1); results do not change")
        ->check(CLI::Range(0, 1))
        ->capture_default_str();
    where->add_flag("--recompute", pipeline.recompute,
                    "recompute activations in the backward pass instead of storing them: less memory, more time");
    where
        ->add_option_function<std::vector<std::int64_t>>(
            "--boundary-shape", [this](const std::vector<std::int64_t>& shape) { pipeline.boundary_shape = shape; },
            "declares the shape of every value between stages, 16,1024 for example; any other shape is an error")
        ->delimiter(',');
  }

  CLI::App* numbers = &in_theme(app, "Numerics");
  numbers->add_option("--seed", pipeline.seed, "seed of initial weights and of the order of samples")
      ->check(is_not_negative)
      ->capture_default_str();
  if (trains) {
    add_choice(*numbers, "--precision", pipeline.precision,
               Choices<Precision>{{"fp32", Precision::fp32}, {"bf16", Precision::bf16}, {"fp16", Precision::fp16}},
               "fp32; bf16 or fp16: layers compute in it, while weights, gradients and the loss are fp32; "
               "with fp16 the loss is scaled dynamically");
    numbers
        ->add_option("--loss-scale", pipeline.loss_scaling.initial,
                     "initial loss scale of fp16: halved, with the update skipped, if a gradient is not finite; "
                     "doubled after 2000 updates")
        ->capture_default_str();
  }
  add_choice(*numbers, "--kernels", kernels, Choices<Kernels>{{"fixed", Kernels::fixed}, {"tuned", Kernels::tuned}},
             "fixed: LibTorch's; tuned, unless built without (PENSTOCK_CPU_KERNELS): the fastest for each layer's "
             "shape, measured first or read from --plan; changes the last bits (default: fixed; with schedule auto, "
             "or kernels in the plan: tuned)");
  numbers->add_option("--threads", world.threads, "intra-op threads per rank; changes the last bits")
      ->capture_default_str();

  CLI::App* job = &in_theme(app, "Job");
  add_choice(*job, "--transport", world.transport,
             Choices<TransportKind>{{"auto", TransportKind::automatic},
                                    {"threads", TransportKind::threads},
                                    {"mpi", TransportKind::mpi},
                                    {"gloo", TransportKind::gloo},
                                    {"nccl", TransportKind::nccl}},
             "auto, threads, mpi, gloo, or nccl: gloo with NCCL for tensors on GPUs");
  job->add_option_function<std::string>(
         "--device", [this](const std::string& name) { pipeline.device = device_named(name); },
         "auto: rank r of a host on cuda:(r mod count) where there are GPUs, else the CPU; cpu; cuda; or "
         "cuda:0, ... for all ranks")
      ->default_str("auto");
  if (trains)
    job->add_option("--compare-batches", pipeline.compare_batches,
                    "processes compare hashes of their batches in the first three steps and every n-th; 0: never")
        ->check(CLI::Range(0, 1 << 30))
        ->capture_default_str();
  add_seconds(*job, "--deadline", world.deadline,
              "seconds without a sign of life from a process until a wait for it fails; a live process sends signs "
              "however long a layer or an evaluation takes");
  add_seconds(*job, "--stall-limit", world.stall_limit,
              "seconds without progress of a rank, alive or not, until a wait for it fails (default: none)");
  add_seconds(*job, "--start-deadline", world.start_deadline, "seconds within which all processes must have joined");
}

void JobFlags::add_tuning_to(CLI::App& app) {
  CLI::App* numbers = &in_theme(app, "Numerics");
  numbers
      ->add_option(
          "--tuning-cache", tuning_cache,
          "keeps what is measured for schedule auto, kernels tuned and partition time: a second run of the same "
          "job starts at once and chooses the same; off: measure in every run (default: "
          "$XDG_CACHE_HOME/penstock or ~/.cache/penstock)")
      ->type_name("DIR|off");
  numbers->add_flag("--tune-again", tune_again, "measure now, and replace what the tuning cache has for this job");
}

void settle(JobFlags& flags) {
  apply_plan(flags);
  settle_defaults(flags);
  apply_stages(flags);
  apply_micro_batch_size(flags);
  check_batch_size(flags);
}

joining::LaunchedAs launched(const JobFlags& flags) {
  return joining::launched_as(asked_transport(flags.world.transport));
}

std::string cluster_text(const JobFlags& flags) {
  if (flags.cluster.empty()) return "";
  return read_file(flags.cluster, [](const std::string& text) {
    read_cluster(text);  // throws
    return text;
  });
}

void decide_by_measuring(JobFlags& flags, World& world, Cell& network, const Batch& sample, PipelineOptions& options) {
  AutotuneOptions how{.sample = sample.inputs, .sample_targets = sample.targets, .cluster = cluster_text(flags)};
  how.profile.optimizer = make_optimizer(flags);
  if (flags.tuning_cache != "off")
    how.cache.folder = flags.tuning_cache.empty() ? default_tuning_folder() : flags.tuning_cache;
  how.cache.measure_again = flags.tune_again;
  how.cache.settings = say(flags.optimizer, flags.momentum > 0 ? " with momentum" : "");
  const AutoChoice choice = autotune_with_reasons(world, network, loss_of(flags.network), options, how);
  options = choice.options;
  flags.layer_costs = choice.costs;
  if (choice.plan) {
    flags.weight_gradients = choice.plan->weight_gradients;
    flags.pipeline.partition = options.partition;
    flags.pipeline.micro_batches = options.micro_batches;
    flags.planned_ms = choice.plan->prediction.makespan;
  }
  if (!choice.origin.empty()) log(LogLevel::info, "tuning: " + choice.origin);
  if (choice.planned && world.is_main()) log(LogLevel::info, explanation(*choice.planned));
}

OptimizerFactory make_optimizer(const JobFlags& flags) {
  require_finite("--lr", flags.learning_rate);
  require_finite("--momentum", flags.momentum);
  require_finite("--weight-decay", flags.weight_decay);
  if (flags.optimizer == "sgd" || flags.optimizer == "rmsprop") {
    // Checks the numbers, which are those of rmsprop, too, before a rank does.
    const OptimizerFactory by_sgd = sgd({.learning_rate = flags.learning_rate,
                                         .momentum = flags.momentum,
                                         .weight_decay = flags.weight_decay,
                                         .nesterov = false});
    if (flags.optimizer == "sgd") return by_sgd;
    return optimizer_factory([options = torch::optim::RMSpropOptions(flags.learning_rate)
                                            .momentum(flags.momentum)
                                            .weight_decay(flags.weight_decay)](auto parameters) {
      return torch::optim::RMSprop(parameters, options);
    });
  }
  require<ConfigError>(flags.momentum == 0, "--momentum ", flags.momentum,
                       " is for --optimizer sgd or rmsprop, not for ", flags.optimizer);
  AdamOptions options;
  options.learning_rate = flags.learning_rate;
  options.weight_decay = flags.weight_decay;
  return flags.optimizer == "adam" ? adam(options) : adamw(options);
}

void freeze_parameters(const JobFlags& flags, Pipeline& pipeline) {
  for (const std::string& pattern : flags.freeze) pipeline.freeze(pattern);
  for (const std::string& pattern : flags.unfreeze) pipeline.unfreeze(pattern);
}

nlohmann::ordered_json settings_of(const JobFlags& flags, const Pipeline& pipeline) {
  const World& world = pipeline.world();
  nlohmann::ordered_json settings = settings_of(flags.network);
  const PipelineOptions& options = pipeline.options();
  const LossReduction& loss = options.loss_reduction;
  settings.update({{"seed", options.seed},
                   {"stages", world.stages()},
                   {"replicas", world.replicas()},
                   {"micro_batches", flags.pipeline.micro_batches},
                   {"schedule", options.schedule},
                   {"chunks", chunks_of(pipeline)},
                   {"weight_gradients", to_string(flags.weight_gradients.value())},
                   {"kernels", options.kernels == Kernels::tuned ? "tuned" : "fixed"},
                   {"cut", flags.pipeline.partition},
                   {"transport", world.transport()},
                   {"threads", world.threads()},
                   {"device", options.device->str()},
                   {"batch_size", flags.batch_size},
                   {"reduction", to_string(loss.reduction)},
                   {"replica_reduction", to_string(loss.replica_reduction)},
                   {"reported_loss", loss.reported_loss ? to_string(*loss.reported_loss) : "reduced"},
                   {"recompute", options.recompute},
                   {"precision", to_string(options.precision)},
                   {"optimizer", flags.optimizer},
                   {"lr", flags.learning_rate},
                   {"momentum", flags.momentum},
                   {"weight_decay", flags.weight_decay}});
  if (flags.planned_ms) settings["planned_ms"] = *flags.planned_ms;
  return settings;
}

std::string banner(const JobFlags& flags, const Pipeline& pipeline) {
  const World& world = pipeline.world();
  const int chunks = chunks_of(pipeline);
  const RowRange share = split(flags.batch_size, {.index = 0, .of = world.replicas()});
  const PipelineOptions& options = pipeline.options();
  return say(describe(flags.network), ": ", world.describe(), "; ", options.schedule,
             chunks > 1 ? say(" with ", chunks, " chunks per rank, ") : std::string(", "),
             counted(options.micro_batches, "micro-batch"), options.recompute ? ", recomputed" : "",
             options.precision == Precision::fp32 ? "" : say(", ", to_string(options.precision)), "; batch ",
             flags.batch_size, world.replicas() > 1 ? say(" in all, ", share.size(), " per replica") : std::string());
}

}  // namespace penstock::cli
