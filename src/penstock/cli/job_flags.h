// The flags for network, training and pipeline, shared by `train`, `bench step` and other verbs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <nlohmann/json_fwd.hpp>

#include "penstock/cli/model_flags.h"
#include "penstock/data/sample_source.h"
#include "penstock/pipeline/pipeline.h"
#include "penstock/plan/layer_costs.h"
#include "penstock/plan/plan_file.h"
#include "penstock/transport/joining/launch_environment.h"

namespace penstock::cli {

struct JobFlags {
  ModelFlags network;
  WorldOptions world;                               // stages = 0: auto, the processes over the replicas, until settle()
  PipelineOptions pipeline = {.micro_batches = 4};  // complete after settle()
  // What settle() decides from other flags.
  std::optional<std::int64_t> micro_batch_size;     // alternative to pipeline.micro_batches
  std::optional<WeightGradients> weight_gradients;  // none: automatic if the schedule is "auto", else stream
  std::optional<Kernels> kernels;                   // none: tuned for the schedule "auto" and for plans with kernels
  std::string plan;                                 // path of a plan file
  std::optional<Plan> planned;                      // contents of the plan file
  std::optional<LayerCosts> layer_costs;            // from which the schedule "auto" was chosen, for traces
  std::optional<double> planned_ms;                 // step time predicted by the schedule "auto" or by the plan
  std::string tuning_cache;                         // a folder, "off", or empty: default_tuning_folder()
  std::string cluster;                              // path of a cluster file, for the schedule "auto"
  bool tune_again = false;                          // measure what is in the cache, too
  std::int64_t batch_size = 32;
  std::string optimizer = "sgd";
  double learning_rate = 0.01;
  double momentum = 0;
  double weight_decay = 0;
  std::vector<std::string> freeze, unfreeze;  // patterns of Pipeline::freeze() and, afterwards, unfreeze()

  /// Add flags, each under its heading; `this` must outlive the parsing. Call add_training_to before add_pipeline_to:
  /// the latter then also adds the pipeline flags that apply to training only.
  void add_to(CLI::App& app);  // calls the other three
  void add_network_to(CLI::App& app);
  void add_training_to(CLI::App& app);
  void add_pipeline_to(CLI::App& app);
  /// For verbs that call decide_by_measuring().
  void add_tuning_to(CLI::App& app);
};

/// Completes and checks the flags, before any other use of them: reads the file of --plan and sets what it decides,
/// sets the defaults that depend on other flags, and converts --micro-batch-size to a number of micro-batches. Throws
/// ConfigError for flags that exclude each other or are out of range and for tuned kernels that this build lacks,
/// DataError for an invalid plan.
void settle(JobFlags& flags);

/// The contents of the file of --cluster; empty without it. Throws as read_cluster().
std::string cluster_text(const JobFlags& flags);

/// How this process was started, for the transport of the flags.
joining::LaunchedAs launched(const JobFlags& flags);
/// Calls autotune() with the sample and the cache of the flags, logs the reasons, and writes the choice for the
/// schedule "auto" to the flags too. Collective.
void decide_by_measuring(JobFlags& flags, World& world, Cell& network, const Batch& sample, PipelineOptions& options);
/// Throws ConfigError for invalid numbers.
OptimizerFactory make_optimizer(const JobFlags& flags);

/// Freezes and unfreezes parameters as the flags say. Collective. Throws ConfigError as Pipeline::freeze().
void freeze_parameters(const JobFlags& flags, Pipeline& pipeline);

/// The effective settings as JSON.
nlohmann::ordered_json settings_of(const JobFlags& flags, const Pipeline& pipeline);

/// One line of text: model, world, schedule, and the batch size per replica and in total.
std::string banner(const JobFlags& flags, const Pipeline& pipeline);

}  // namespace penstock::cli
