// The flags that say how a network is trained, and which: shared by `train` and `bench step`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <nlohmann/json_fwd.hpp>

#include "penstock/cli/model_flags.h"
#include "penstock/plan/plan_file.h"
#include "penstock/runtime/pipeline.h"

namespace penstock {

struct JobFlags {
  ModelFlags network;
  int stages = 1;
  int replicas = 0;
  int micro_batches = 4;
  std::optional<std::int64_t> micro_batch_size;  // in their place
  std::vector<std::int64_t> boundary_shape;      // empty: any
  std::string schedule;
  int chunks = 0;
  std::string weight_gradients;  // empty: stream, or auto where the schedule is
  std::string kernels;           // empty: fixed, or tuned where the schedule is auto or the plan has kernels
  std::optional<double> memory_limit;
  std::string plan;
  std::optional<Plan> planned;       // what is in that file
  std::optional<double> planned_ms;  // the step that the schedule "auto", or the plan, promises
  std::int64_t batch_size = 32;
  std::string reduction = "mean";
  std::string replica_reduction = "mean";
  std::string reported_loss;  // empty: the loss whose gradients are applied
  std::string partition = "parameters";
  std::string optimizer = "sgd";
  double learning_rate = 0.01;
  double momentum = 0;
  double weight_decay = 0;
  std::optional<double> clip_norm;
  bool recompute = false;
  std::string precision = "fp32";
  double loss_scale = 65536;
  int compare_batches = 100;
  std::uint64_t seed = 0;
  int threads = 1;
  std::string transport = "auto";
  std::string device = "auto";
  double deadline_s = 60;
  std::optional<double> stall_limit_s;
  double start_deadline_s = 60;

  /// Each puts its flags under the headings of their themes; `this` must outlive the parsing. With training flags,
  /// which come before those of the pipeline, the latter include what belongs to training alone.
  void add_to(CLI::App& app);  // all three
  void add_network_to(CLI::App& app);
  void add_training_to(CLI::App& app);
  void add_pipeline_to(CLI::App& app);
};

/// Fills in what depends on other flags.
void settle_defaults(JobFlags& flags);
/// AlternatingOrder --micro-batch-size, where it is given, into the number of micro-batches.
void obey_micro_batch_size(JobFlags& flags);
/// Reads --plan, where it is given, into the flags that it stands for. Throws ConfigError or DataError.
void obey_plan(JobFlags& flags);
/// Throws ConfigError where --plan names layers that this network does not have, or leaves out layers with parameters.
void require_plan_is_of(const JobFlags& flags, Cell& network);
/// That the plan was made for this network: every layer that it names is there, on its stage, and it names every layer
/// with parameters. Throws ConfigError.
void require_plan_fits(const JobFlags& flags, Pipeline& pipeline);

/// Each throws ConfigError for what cannot be.
void check_batch_size(const JobFlags& flags);
WorldOptions world_options(const JobFlags& flags);
PipelineOptions pipeline_options(const JobFlags& flags);
/// autotune() on the options' sample and sample_targets; what the schedule "auto" came to is written into the flags too.
/// Collective.
void decide_by_measuring(JobFlags& flags, World& world, Cell& network, PipelineOptions& options);
OptimizerFactory make_optimizer(const JobFlags& flags);

/// Throws ConfigError where --batch-size gives no replica a sample for each of its micro-batches. (A short last batch of
/// an epoch runs with fewer micro-batches.)
void require_enough_samples(const JobFlags& flags, const World& world);
/// The same where it does not give them to every replica: accounts and pictures show steps of all m micro-batches.
void require_full_steps(const JobFlags& flags, const World& world);

/// The settings used, for machines: what the flags came to.
nlohmann::ordered_json settings_of(const JobFlags& flags, const Pipeline& pipeline);

/// One line for people: model, world, schedule, and the batch per replica and in all.
std::string banner(const JobFlags& flags, const Pipeline& pipeline);

}  // namespace penstock
