#include "penstock/cli/job.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include <torch/nn/module.h>

#include "penstock/autotune/autotune.h"
#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/base/text.h"
#include "penstock/cli/memory_need.h"
#include "penstock/cli/verbs.h"
#include "penstock/kernels/kernels.h"
#include "penstock/model/stages.h"
#include "penstock/world/rank_threads.h"

namespace penstock::cli {
namespace {

/// Throws ConfigError if --plan contains layers that this network does not have, or lacks layers with parameters.
void require_plan_is_of(const JobFlags& flags, Cell& network) {
  if (!flags.planned) return;
  std::set<std::string> planned, layers;
  for (const auto& stage : flags.planned->stages) planned.insert(stage.begin(), stage.end());
  const auto print_error = [&](const std::string& difference) {
    throw ConfigError(say(flags.plan, " is the plan of another network: ", difference, " (", describe(flags.network),
                          "): plan with the costs of this network"));
  };
  for (const Node& node : trace_graph(network).nodes) {
    if (!node.is_parameter()) layers.insert(node.name);
    const bool has_parameters = node.is_layer() && !node.is_parameter() && planned.count(node.name) == 0 &&
                                !shapes_of(*node.layer).parameters.is_empty();
    if (has_parameters) print_error(say("it does not have layer '", node.name, "', which this network has"));
  }
  for (const auto& stage : flags.planned->stages)
    for (const std::string& layer : stage)
      if (!layers.contains(layer)) print_error(say("it has layer '", layer, "', which this network does not have"));
}

/// Throws ConfigError unless every layer of the plan, which is one of the network, is on the plan's stage.
void require_plan_fits(const JobFlags& flags, const Pipeline& pipeline) {
  if (!flags.planned) return;
  const StagedGraph& staged = pipeline.stages();
  std::map<std::string, int> partition;
  for (std::size_t n = 0; n < staged.graph.nodes.size(); ++n)
    partition[staged.graph.nodes[n].name] = staged.stage_of_node[n].value();
  for (std::size_t stage = 0; stage < flags.planned->stages.size(); ++stage)
    for (const std::string& layer : flags.planned->stages[stage])
      require<ConfigError>(partition.at(layer) == static_cast<int>(stage), flags.plan, " has layer '", layer,
                           "' on stage ", stage, ", but in this network it is on stage ", partition.at(layer),
                           ": plan with the layers in the order in which this network runs them");
}

void log_casts(const hf::MappedWeights& weights) {
  std::string types;
  for (const TensorType type : weights.floating_types())
    if (type != TensorType::f32) types += say(types.empty() ? "" : ", ", to_string(type));
  if (!types.empty()) log(LogLevel::info, say(weights.place(), ": weights of ", types, " are cast to F32"));
}

/// The options of the world, after the checks that need no ranks.
WorldOptions checked_world_options(const JobFlags& flags, Use use, Cell& network) {
  require<ConfigError>(
      use != Use::forward || flags.pipeline.schedule != "auto",
      "--schedule auto measures training steps, and none run here: name a schedule, or pass the --plan "
      "of the training");
  const std::optional<MemoryLimit>& limit = flags.pipeline.memory_limit;
  require<ConfigError>(use != Use::forward || !limit || !is_in_bytes(*limit), "--memory-limit ",
                       limit ? to_string(*limit) : "", " limits training steps, and none run here: leave it out");
  require_plan_is_of(flags, network);
  if (flags.planned) network.recompute_named(flags.planned->recompute);
  return flags.world;
}

}  // namespace

Job::Job(JobFlags& flags, Use use, const std::shared_ptr<const hf::MappedWeights>& weights)
    : flags_(flags),
      use_(use),
      network_(make_model(flags.network, weights)),
      optimizer_(use == Use::forward ? OptimizerFactory() : make_optimizer(flags)),
      world_(checked_world_options(flags, use, *network_)) {
  if (use != Use::forward) require_batch();
  if (!world_.is_main()) return;
  if (flags.pipeline.precision == Precision::bf16 && !multiplies_bf16())
    log(LogLevel::warning,
        "this processor does not multiply bf16: --precision bf16 takes longer than fp32 on it "
        "(`penstock doctor` measures both)");
  const auto read = weights ? weights : hf_weights(flags.network);
  if (read) log_casts(*read);
}

Job::~Job() {
  // Only ranks that have noticed it themselves see rank 0 as lost: mostly one, which tells the others.
  if (world_.rank() > 0 && ranks_of(world_).is_lost(WorldRank(0))) report_in_place_of_rank_0();
}

void Job::require_batch() const {
  const std::int64_t replicas = world_.replicas();
  const int micro_batches = flags_.pipeline.micro_batches;
  const std::int64_t least =
      use_ == Use::train_full_steps ? micro_batches * replicas : (micro_batches - 1) * replicas + 1;
  const std::int64_t most = flags_.batch_size / replicas;
  require<ConfigError>(flags_.batch_size >= least, "batch-size = ", flags_.batch_size, " fills fewer than ",
                       micro_batches, " micro-batches on each of ", counted(replicas, "replica"),
                       ": pass --batch-size ", least, " or more",
                       most >= 1 ? say(", or --micro-batches ", most, " or fewer") : std::string());
}

void Job::log_need(const PipelineOptions& options) const {
  if (!hf_directory(flags_.network) || !world_.is_main()) return;
  const int values = flags_.optimizer.starts_with("adam") ? 2 : flags_.optimizer == "rmsprop" ? 1 : 0;
  const auto fit = [](const std::vector<std::string>& patterns, const std::string& name) {
    return std::ranges::any_of(patterns, [&](const std::string& pattern) {
      return fits_pattern(pattern, name) || fits_pattern(pattern + ".*", name);
    });
  };
  const Training training{.ranks = world_.stages(),
                          .has_updates = use_ != Use::forward,
                          .optimizer_values = values + (flags_.momentum > 0 ? 1 : 0),
                          .state_sharers = options.zero > 0 ? world_.replicas() : 1,
                          .trains = [&](const std::string& name, bool by_itself) {
                            return fit(flags_.unfreeze, name) || (by_itself && !fit(flags_.freeze, name));
                          }};
  const bool is_of_threads = launched(flags_).kind == joining::LaunchedAs::Kind::alone;
  log(LogLevel::info, need_text(bytes_of_ranks(*network_, options, training),
                                is_of_threads ? static_cast<std::size_t>(world_.stages()) : 1, available_memory()));
}

std::unique_ptr<Pipeline> Job::make_pipeline(const PipelineStart& start) {
  PipelineOptions options = flags_.pipeline;
  options.count_bytes = start.count_bytes;
  if (needs_measuring(options)) decide_by_measuring(flags_, world_, *network_, start.sample(), options);
  log_need(options);
  auto pipeline = std::make_unique<Pipeline>(world_, *network_, loss_of(flags_.network), options);
  require_plan_fits(flags_, *pipeline);
  freeze_parameters(flags_, *pipeline);  // first, so that a frozen parameter has no optimiser state
  if (optimizer_) pipeline->optimize_with(optimizer_);
  return pipeline;
}

}  // namespace penstock::cli
