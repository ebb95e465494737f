#include "penstock/pipeline/pipeline_impl.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/base/text.h"
#include "penstock/checkpoint/checkpoint_reader.h"
#include "penstock/layers/thread_scopes.h"
#include "penstock/model/loss.h"
#include "penstock/pipeline/partition_network.h"
#include "penstock/rank/parameter_updater.h"
#include "penstock/schedule/schedule.h"
#include "penstock/world/collectives.h"
#include "penstock/world/device.h"
#include "penstock/world/rank_threads.h"

namespace penstock {
namespace {

/// `given` with the choices that the pipeline itself makes.
PipelineOptions decided_options(PipelineOptions options, const std::string& schedule) {
  keep_only_shapes(options.example_inputs);
  options.schedule = schedule;
  options.device = resolved_device(options.device);
  return options;
}

void require_options(const PipelineOptions& options, int inputs) {
  const std::size_t dims = options.batch_dims.inputs.size();
  require<ConfigError>(dims <= static_cast<std::size_t>(inputs), "batch_dims has ", dims,
                       " dimensions for inputs, but the network takes ", inputs, ": set at most one for each");
  rank::require_clipping(options);
  rank::require_loss_scaling(options.loss_scaling);
  layers::require_precision(options.precision, device_of(*options.device, 0).type());
  require<ConfigError>(options.update_every >= 1, "update_every is ", options.update_every,
                       " calls of train_step: set at least 1");
  require<ConfigError>(options.compare_batches >= 0, "batches are compared in every ", options.compare_batches,
                       "th step: give a positive number, or 0 for never");
}

/// The parameters that a pattern names.
struct FoundParameters {
  std::vector<std::string> owners;  // full names; of a tied one, its owner's
  std::string ties;                 // their other uses that the pattern does not name, for people
  std::string nearest;              // the nearest name if there are none
};

/// On every rank's thread: finds the parameters of all ranks that the pattern names. Returns the same everywhere.
FoundParameters agree_on_parameters(const rank::RankRunner& runner, const Tag& tag, const std::string& pattern) {
  std::string own;  // a line for each use of a parameter, and one for its owner
  for (const auto& stage : runner.stages())
    for (const auto& [name, owner] : stage->parameter_names()) own += name + "\n" + owner + "\n";
  const auto fits = [&](const std::string& name) {
    return fits_pattern(pattern, name) || fits_pattern(pattern + ".*", name);
  };
  const auto decide = [&](const std::vector<Message>& all) {
    std::map<std::string, std::set<std::string>> uses;  // by owner
    std::vector<std::string> names;
    for (const Message& message : all) {
      std::istringstream lines(transport::text_in(message));
      for (std::string name, owner; std::getline(lines, name) && std::getline(lines, owner);) {
        uses[owner].insert({name, owner});
        names.push_back(name);
      }
    }
    std::string owners, ties;
    for (const auto& [owner, used_as] : uses) {
      if (std::none_of(used_as.begin(), used_as.end(), fits)) continue;
      owners += owner + "\n";
      for (const std::string& name : used_as)
        if (!fits(name)) ties += say(ties.empty() ? "" : ", ", name, " with ", owner == name ? pattern : owner);
    }
    return transport::message_of(owners, ties,
                                 owners.empty() && !names.empty() ? nearest(pattern, names) : std::string());
  };
  const Message agreed = agree(runner.context(), tag, transport::message_of(own), decide,
                               {.parts = "the names of its parameters", .decision = "which parameters are frozen"});
  FoundParameters found{.owners = {}, .ties = transport::text_in(agreed, 1), .nearest = transport::text_in(agreed, 2)};
  std::istringstream lines(transport::text_in(agreed));
  for (std::string owner; std::getline(lines, owner);) found.owners.push_back(owner);
  return found;
}

}  // namespace

PipelineImpl::PipelineImpl(World& in_world, Cell& network, Loss given_loss, const PipelineOptions& given)
    : options(given),
      loss(complete(std::move(given_loss))),
      axes{{"inputs", given.batch_dims.inputs},
           {"targets", given.batch_dims.targets},
           {"outputs", given.batch_dims.outputs}},
      number(ranks_of(in_world).next_pipeline()),
      schedules({.options = given, .ranks = in_world.stages()}),
      runners(std::make_shared<rank::LocalRunners>(
          in_world, number, partition_network(network, options, schedules.training().stage_count()))),
      jobs({options, loss, axes, schedules, *runners}),
      parts(given.update_every),
      inferences(runners) {
  options = decided_options(std::move(options), schedules.source());
  require_options(options, staged().graph.inputs);
  rank::require_zero(options, world().replicas());
  if (world().is_main())
    for (const std::string& warning : staged().warnings) warn(warning);
  const std::shared_ptr<const kernels::KernelSelection> kernels =
      kernels::kernels_from(options.kernels, options.kernel_selection);
  const auto shared = std::make_shared<const PipelineOptions>(options);
  runners->make([&](const RankContext& context) {
    const int local_rank = context.is_alone ? context.rank.value() : local_rank_of(context.rank.value());
    return std::make_unique<rank::RankRunner>(staged(), schedules.training(),
                                              rank::RankSetting{.pipeline = number,
                                                                .context = context,
                                                                .loss = loss,
                                                                .options = shared,
                                                                .device = device_of(*options.device, local_rank),
                                                                .kernels = kernels,
                                                                .axes = axes});
  });
  lower();
}

void PipelineImpl::lower() {
  std::vector<bool> node_trains;
  runners->run([&](rank::RankRunner& runner) {
    auto trains =
        compare_ranks(runner.context(), {number, fingerprint(), runner.trainable_nodes(), staged().graph.nodes.size()});
    if (runner.context().collects) node_trains = std::move(trains);
  });
  schedules.set_partition(links_of(staged(), node_trains), world().replicas() > 1 || has_ties(staged(), node_trains));
  full_schedule = schedules.for_training(options.micro_batches);
}

std::vector<std::string> PipelineImpl::set_trainable(const std::string& pattern, bool trains) {
  require<ConfigError>(!parts.has_gradients(), "freeze before the last step's ", "update: call step() first");
  drain();
  const Tag tag = runners->next_gathering();
  FoundParameters found;
  runners->run([&](rank::RankRunner& runner) {
    FoundParameters agreed = agree_on_parameters(runner, tag, pattern);
    const std::set<std::string> owners(agreed.owners.begin(), agreed.owners.end());
    if (!owners.empty())
      runner.set_trainable(
          [&](const std::string& name) { return owners.contains(name) ? std::optional(trains) : std::nullopt; });
    if (runner.context().collects) found = std::move(agreed);
  });
  require<ConfigError>(!found.owners.empty(), "no parameter of the network is called '", pattern,
                       "', and no layer or Cell with parameters: pass a full name such as '", found.nearest,
                       "', the nearest, or a pattern with * and ?");
  if (!found.ties.empty() && world().is_main())
    warn(say("'", pattern, "' ", trains ? "unfreezes" : "freezes", " tied parameters: ", found.ties));
  lower();
  return found.owners;
}

void PipelineImpl::drain() {
  ranks_of(world()).require_own_process();
  inferences.finish();
  runners->finish();
}

RankFailure PipelineImpl::no_state(const std::string& failure) const {
  std::string advice = "save checkpoints (Pipeline::checkpoints, --checkpoint) to continue from them";
  if (!checkpoint_folder.empty()) {
    advice = say("there is no complete checkpoint in ", checkpoint_folder);
    try {
      if (const auto newest = newest_checkpoint(checkpoint_folder, CheckpointCheck::structure).checkpoint)
        advice = "continue from the checkpoint " + newest->directory();
    } catch (const std::exception& error) {
      advice += say(" (", error.what(), ")");
    }
  }
  return RankFailure(say("no state is left after a failure (", failure, "): ", advice));
}

void PipelineImpl::require_own_values() const {
  require<ConfigError>(!uses_average,
                       "training while the average replaces the weights: call WeightAverage::use(false) first");
}

StepResult PipelineImpl::forward_backward(const BatchTensors& inputs, const BatchTensors& targets,
                                          const StepOptions& how) {
  parts.require_forward_backward();
  const auto job = jobs.training(inputs, targets, rank::StepPart::forward_backward);
  job->keeps_outputs = how.keep_outputs;
  parts.begin(job, jobs.weight_of(*job));
  return runners->start(job);
}

void PipelineImpl::later_part(rank::StepPart part, double divisor) {
  require<ConfigError>(has_optimizer || part != rank::StepPart::update,
                       "step before optimize_with: give the pipeline an optimiser first");
  parts.require_later(part);
  require<ConfigError>(std::isfinite(divisor) && divisor != 0, "gradients divided by ", divisor,
                       ": pass a finite scale that is not 0");
  if (part == rank::StepPart::update && parts.needs_reduction()) later_part(rank::StepPart::reduce, 1);
  const auto begun = parts.begun();
  const auto job = jobs.later_part(*begun, part, divisor);
  parts.end(part);
  const StepResult result = runners->start(job);
  if (part != rank::StepPart::update) return;
  // The result of the step is that of forward_backward.
  if (options.clips()) begun->state->set_gradient_norm(result.gradient_norm());
  if (options.precision == Precision::fp16 && result.update_skipped()) begun->state->set_update_skipped();
}

}  // namespace penstock
