#include "penstock/cli/job_flags.h"

#include <algorithm>
#include <cmath>

#include <torch/optim/rmsprop.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "penstock/autotune/autotune.h"
#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/base/text.h"
#include "penstock/cli/command_line_check.h"
#include "penstock/cli/memory_limit_flag.h"
#include "penstock/cli/weight_gradients_flag.h"
#include "penstock/plan/plan.h"
#include "penstock/train/optimizers.h"
#include "penstock/transport/launch_environment.h"

namespace penstock {
namespace {

constexpr double longest_deadline_s = 1e6;

void require_finite(const char* flag, double value) {
  require<ConfigError>(std::isfinite(value), flag, " ", value, ": give a finite number");
}

/// Returns an error message, or an empty string. CLI11's conversion to unsigned would turn -1 into a large number.
std::string is_not_negative(const std::string& text) {
  return text.starts_with('-') ? say(text, " is below 0") : std::string();
}

std::string is_precision(const std::string& text) {
  return text == "fp32" || text == "bf16" || text == "fp16" ? "" : text + " is not fp32, bf16 or fp16";
}

Reduction reduction_called(const std::string& name) { return name == "sum" ? Reduction::sum : Reduction::mean; }

std::string auto_is_zero(std::string& count) {
  if (count == "auto") count = "0";
  return "";
}

int chunks_of(const Pipeline& pipeline) { return pipeline.schedule().stage_count() / pipeline.schedule().rank_count(); }

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
  how->add_option("--optimizer", optimizer, "sgd, adam, adamw or rmsprop")
      ->check(CLI::IsMember({"sgd", "adam", "adamw", "rmsprop"}))
      ->capture_default_str();
  how->add_option("--lr", learning_rate, "learning rate")->capture_default_str();
  how->add_option("--momentum", momentum, "momentum of sgd and rmsprop")->capture_default_str();
  how->add_option("--weight-decay", weight_decay, "weight decay; adamw decouples it from the gradient")
      ->capture_default_str();
  how->add_option("--clip-norm", clip_norm, "scale gradients down to this global norm (default: no clipping)");
  how->add_option("--reduction", reduction, "mean: over the batch; sum: of the micro-batches' means")
      ->check(CLI::IsMember({"mean", "sum"}))
      ->capture_default_str();
  how->add_option(
         "--replica-reduction", replica_reduction,
         "mean: replicas do not change the loss and the gradients; sum: both are multiplied by the number of replicas")
      ->check(CLI::IsMember({"mean", "sum"}))
      ->capture_default_str();
  how->add_option("--reported-loss", reported_loss,
                  "mean: over the batch; sum: of the micro-batches' means, averaged over replicas; gradients stay "
                  "as they are (default: the loss whose gradients are applied)")
      ->check(CLI::IsMember({"mean", "sum"}));
}

void JobFlags::add_pipeline_to(CLI::App& app) {
  const bool trains = app.get_option_no_throw("--lr") != nullptr;  // add_training_to was called before
  CLI::App* where = &in_theme(app, "Pipeline");
  std::vector<CLI::Option*> in_plan;  // options that a plan sets, too
  const auto add = [&](CLI::Option* option) { in_plan.push_back(option); };
  add(where->add_option("--stages", stages, "pipeline ranks p")->capture_default_str());
  add(where
          ->add_option("--micro-batches", micro_batches,
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
  add(where->add_option("--schedule", schedule,
                        "a generator (penstock schedule show --help lists them) or a .sched or CSV file "
                        "(default: 1f1b; with chunks interleaved)"));
  add(where->add_option("--chunks", chunks, "v: stages per rank (default: the schedule's own)")
          ->check(CLI::Range(1, 4096)));
  add(add_weight_gradients(*where, weight_gradients,
                           "stream: micro-batch by micro-batch; fused: one product over all of them; changes the last "
                           "bits (default: stream; with schedule auto: auto, the faster of the two)"));
  add(add_memory_limit(*where, memory_limit, " (default: the schedule's own bound)"));
  add(where
          ->add_option("--partition", partition,
                       "parameters, uniform, time (measured on the first samples), or the first layer of each further "
                       "stage: layer3 or 4")
          ->capture_default_str());
  CLI::Option* from_file = where->add_option("--plan", plan, "read these flags from a file written by penstock plan");
  for (CLI::Option* option : in_plan) from_file->excludes(option);
  where->add_option("--replicas", replicas,
                    "data-parallel copies of the pipeline (default: 1; under MPI, processes / stages)");
  if (trains) {
    where->add_flag("--recompute", recompute,
                    "recompute activations in the backward pass instead of storing them: less memory, more time");
    where
        ->add_option(
            "--boundary-shape", boundary_shape,
            "declares the shape of every value between stages, 16,1024 for example; any other shape is an error")
        ->delimiter(',');
  }

  CLI::App* numbers = &in_theme(app, "Numerics");
  numbers->add_option("--seed", seed, "seed of initial weights and of the order of samples")
      ->check(is_not_negative)
      ->capture_default_str();
  if (trains)
    numbers
        ->add_option("--precision", precision,
                     "fp32; bf16 or fp16: layers compute in it, while weights, gradients and the loss are fp32; "
                     "with fp16 the loss is scaled dynamically")
        ->check(is_precision)
        ->capture_default_str();
  if (trains)
    numbers
        ->add_option("--loss-scale", loss_scale,
                     "initial loss scale of fp16: halved, with the update skipped, if a gradient is not finite; "
                     "doubled after 2000 updates")
        ->capture_default_str();
  numbers
      ->add_option("--kernels", kernels,
                   "fixed: LibTorch's; tuned, unless built without (PENSTOCK_CPU_KERNELS): the fastest for each "
                   "layer's shape, measured first or read from --plan; changes the last bits (default: fixed; with "
                   "schedule auto, or kernels in the plan: tuned)")
      ->check(CLI::IsMember({"fixed", "tuned"}));
  numbers->add_option("--threads", threads, "intra-op threads per rank; changes the last bits")->capture_default_str();

  CLI::App* job = &in_theme(app, "Job");
  job->add_option("--transport", transport, "auto, threads, mpi, gloo, or nccl: gloo with NCCL for tensors on GPUs")
      ->check(CLI::IsMember({"auto", "threads", "mpi", "gloo", "nccl"}))
      ->capture_default_str();
  job->add_option("--device", device,
                  "auto: rank r of a host on cuda:(r mod count) where there are GPUs, else the CPU; cpu; cuda; or "
                  "cuda:0, ... for all ranks")
      ->capture_default_str();
  if (trains)
    job->add_option("--compare-batches", compare_batches,
                    "processes compare hashes of their batches in the first three steps and every n-th; 0: never")
        ->check(CLI::Range(0, 1 << 30))
        ->capture_default_str();
  job->add_option("--deadline", deadline_s,
                  "seconds without a sign of life from a process until a wait for it fails; a live process sends signs "
                  "however long a layer or an evaluation takes")
      ->capture_default_str();
  job->add_option("--stall-limit", stall_limit_s,
                  "seconds without progress of a rank, alive or not, until a wait for it fails (default: none)");
  job->add_option("--start-deadline", start_deadline_s, "seconds within which all processes must have joined")
      ->capture_default_str();
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

namespace {

void settle_defaults(JobFlags& flags) {
  const bool is_auto = flags.schedule == "auto";
  require<ConfigError>(is_auto || flags.weight_gradients != WeightGradients::automatic,
                       "--weight-gradients auto is found by measuring: give --schedule auto, or choose stream "
                       "or fused");
  if (!flags.weight_gradients) flags.weight_gradients = is_auto ? WeightGradients::automatic : WeightGradients::stream;
  const bool is_planned = flags.planned && !flags.planned->kernels.empty();
  if (flags.kernels.empty()) flags.kernels = is_planned || (is_auto && has_cpu_kernels()) ? "tuned" : "fixed";
  if (flags.kernels == "tuned") require_kernels(Kernels::tuned);
}

void apply_micro_batch_size(JobFlags& flags) {
  if (!flags.micro_batch_size) return;
  const int processes = launched_as(asked_transport(flags.transport)).size;
  const int inferred = processes > 1 && flags.stages > 0 ? processes / flags.stages : 1;
  const int replicas = std::max(1, flags.replicas > 0 ? flags.replicas : inferred);
  const std::int64_t share = split(flags.batch_size, {.index = 0, .of = replicas}).size();
  const std::int64_t count = (share + *flags.micro_batch_size - 1) / *flags.micro_batch_size;
  flags.micro_batches = static_cast<int>(std::max<std::int64_t>(1, count));
}

void apply_plan(JobFlags& flags) {
  if (flags.plan.empty()) return;
  flags.planned = read_file(flags.plan, read_plan);
  if (flags.planned->time_unit == "ms") flags.planned_ms = flags.planned->prediction.makespan;
  const Plan& plan = *flags.planned;
  flags.stages = plan.schedule.rank_count();
  flags.micro_batches = plan.schedule.micro_batches;
  flags.weight_gradients = plan.weight_gradients;
  flags.partition = partition_of(plan);
}

void check_batch_size(const JobFlags& flags) {
  require<ConfigError>(flags.batch_size >= 1, "batch-size = ", flags.batch_size, ", but a batch has at least 1 sample");
}

}  // namespace

void settle(JobFlags& flags) {
  apply_plan(flags);
  settle_defaults(flags);
  apply_micro_batch_size(flags);
  check_batch_size(flags);
}

WorldOptions world_options(const JobFlags& flags) {
  WorldOptions options;
  const auto time_of = [](const char* flag, double seconds) {
    require<ConfigError>(seconds >= 1e-3 && seconds <= longest_deadline_s, flag, " ", seconds,
                         ": give seconds between 0.001 and ", longest_deadline_s);
    return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
  };
  options.stages = flags.stages;
  options.replicas = flags.replicas;
  options.threads = flags.threads;
  options.deadline = time_of("--deadline", flags.deadline_s);
  if (flags.stall_limit_s) options.stall_limit = time_of("--stall-limit", *flags.stall_limit_s);
  options.start_deadline = time_of("--start-deadline", flags.start_deadline_s);
  if (flags.transport == "threads") options.transport = TransportKind::threads;
  if (flags.transport == "mpi") options.transport = TransportKind::mpi;
  if (flags.transport == "gloo") options.transport = TransportKind::gloo;
  if (flags.transport == "nccl") options.transport = TransportKind::nccl;
  return options;
}

PipelineOptions pipeline_options(const JobFlags& flags) {
  PipelineOptions options;
  options.micro_batches = flags.micro_batches;
  options.schedule = flags.schedule;
  if (flags.planned) options.custom = flags.planned->schedule;
  options.chunks = flags.chunks;
  // The instructions of a plan are fused already.
  if (flags.weight_gradients && !flags.planned) options.weight_gradients = *flags.weight_gradients;
  if (flags.kernels == "tuned") {
    options.kernels = Kernels::tuned;
    options.kernel_selection = flags.planned ? flags.planned->kernels : flags.kernel_selection;
  }
  options.memory_limit = flags.memory_limit;
  options.reduction = reduction_called(flags.reduction);
  options.replica_reduction = reduction_called(flags.replica_reduction);
  if (!flags.reported_loss.empty()) options.reported_loss = reduction_called(flags.reported_loss);
  options.clip_norm = flags.clip_norm;
  options.recompute = flags.recompute;
  if (flags.precision == "bf16") options.precision = Precision::bf16;
  if (flags.precision == "fp16") options.precision = Precision::fp16;
  options.loss_scaling.initial = flags.loss_scale;
  options.compare_batches = flags.compare_batches;
  options.partition = flags.partition;
  options.device = flags.device;
  if (!flags.boundary_shape.empty()) options.boundary_shape = flags.boundary_shape;
  options.seed = flags.seed;
  return options;
}

void decide_by_measuring(JobFlags& flags, World& world, Cell& network, PipelineOptions& options) {
  AutotuneOptions how;
  how.profile.optimizer = make_optimizer(flags);
  if (flags.tuning_cache != "off")
    how.cache.folder = flags.tuning_cache.empty() ? default_tuning_folder() : flags.tuning_cache;
  how.cache.measure_again = flags.tune_again;
  how.cache.settings = say(flags.optimizer, flags.momentum > 0 ? " with momentum" : "");
  const AutoChoice choice = autotune_with_reasons(world, network, loss_of(flags.network), options, how);
  options = choice.options;
  if (choice.plan) {
    flags.weight_gradients = choice.plan->weight_gradients;
    flags.partition = options.partition;
    flags.micro_batches = options.micro_batches;
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

nlohmann::ordered_json settings_of(const JobFlags& flags, const Pipeline& pipeline) {
  const World& world = pipeline.world();
  nlohmann::ordered_json settings = settings_of(flags.network);
  settings.update({{"seed", flags.seed},
                   {"stages", world.stages()},
                   {"replicas", world.replicas()},
                   {"micro_batches", flags.micro_batches},
                   {"schedule", pipeline.options().schedule},
                   {"chunks", chunks_of(pipeline)},
                   {"weight_gradients", to_string(flags.weight_gradients.value())},
                   {"kernels", flags.kernels},
                   {"cut", flags.partition},
                   {"transport", world.transport()},
                   {"threads", world.threads()},
                   {"device", pipeline.options().device},
                   {"batch_size", flags.batch_size},
                   {"reduction", flags.reduction},
                   {"replica_reduction", flags.replica_reduction},
                   {"reported_loss", flags.reported_loss.empty() ? "reduced" : flags.reported_loss},
                   {"recompute", flags.recompute},
                   {"precision", flags.precision},
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
  return say(describe(flags.network), ": ", world.describe(), "; ", pipeline.options().schedule,
             chunks > 1 ? say(" with ", chunks, " chunks per rank, ") : std::string(", "), flags.micro_batches,
             " micro-batch", flags.micro_batches == 1 ? "" : "es", flags.recompute ? ", recomputed" : "",
             flags.precision == "fp32" ? "" : ", " + flags.precision, "; batch ", flags.batch_size,
             world.replicas() > 1 ? say(" in all, ", share.size(), " per replica") : std::string());
}

}  // namespace penstock
