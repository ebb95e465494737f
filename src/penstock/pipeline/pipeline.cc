#include "penstock/pipeline/pipeline.h"

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include <torch/nn/module.h>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/pipeline/partition_network.h"
#include "penstock/pipeline/pipeline_impl.h"
#include "penstock/schedule/schedule.h"
#include "penstock/state/saved_state.h"
#include "penstock/state/state_loader.h"
#include "penstock/transport/device_hand_over.h"
#include "penstock/world/gather.h"
#include "penstock/world/rank_threads.h"

namespace penstock {
namespace {

/// This rank's contribution to the whole state: the parameters and buffers whose owner it is; none on replicas but 0.
StateParts owned_state(const rank::RankRunner& runner, const StateFilter& which) {
  StateParts own;
  if (runner.context().replica() != Replica(0)) return own;
  for (const auto& stage : runner.stages())
    for (const rank::Stage::Held& held : stage->state())
      if (held.is_owned_by(stage->id()) && fits_pattern(which.pattern, held.name) &&
          (!which.trained_only || held.is_buffer() || held.value.requires_grad()))
        own[held.place] = {held.name, held.value};
  return own;
}

}  // namespace

Pipeline::Pipeline(World& world, Cell& network, Loss loss, const PipelineOptions& options)
    : impl_(std::make_unique<PipelineImpl>(world, network, std::move(loss), options)) {}

// Reports to the other processes that an exception ended the pipeline here, or logs unreported failures.
Pipeline::~Pipeline() {
  const bool by_exception = std::uncaught_exceptions() > impl_->exceptions;
  if (by_exception) ranks_of(impl_->world()).leave_pipeline(impl_->number);
  impl_->inferences.settle();
  impl_->runners->settle();
  if (!by_exception) ranks_of(impl_->world()).failures()->log_unreported("a pipeline ends with");
}

// Training.

void Pipeline::optimize_with(const ParameterGroups& optimizers) {
  optimizers.require_all_used([this] { return all_parameters(stages(), options().seed); });
  require<ConfigError>(options().zero == 0 || optimizers.are_elementwise(),
                       "with --zero 1 a replica updates some rows of a parameter, and this optimiser may need all of ",
                       "them: take sgd, adam or adamw, override Optimizer::is_elementwise(), or set --zero 0");
  impl_->on_each_rank([&](rank::RankRunner& runner) { runner.updater().make_optimizers(optimizers.factory()); });
  impl_->has_optimizer = true;
}

StepResult Pipeline::train_step(const BatchTensors& inputs, const BatchTensors& targets, const StepOptions& options) {
  impl_->require_own_values();
  require<ConfigError>(impl_->has_optimizer, "train_step before optimize_with: give the pipeline an optimiser first");
  const bool accumulates = impl_->parts.accumulates();
  require<ConfigError>(accumulates || !impl_->parts.has_gradients(),
                       "a step is begun before the last one's update: call step() first");
  if (accumulates) {
    const StepResult result = impl_->forward_backward(inputs, targets, options);
    if (impl_->parts.is_update_due()) impl_->later_part(rank::StepPart::update, 1);
    return result;
  }
  const auto job = impl_->jobs.training(inputs, targets, rank::StepPart::whole);
  job->keeps_outputs = options.keep_outputs;
  job->require_previous = options.require_previous;
  job->refuses_invalid_loss = options.refuse_invalid_loss;
  return impl_->runners->start(job);
}

void Pipeline::skip_step() {
  impl_->parts.require_whole_steps("skip_step");
  impl_->jobs.skip_step();
}

StepResult Pipeline::forward_backward(const BatchTensors& inputs, const BatchTensors& targets) {
  impl_->require_own_values();
  return impl_->forward_backward(inputs, targets, {});
}
void Pipeline::reduce_gradients(double scale) { impl_->later_part(rank::StepPart::reduce, scale); }
void Pipeline::step() { impl_->later_part(rank::StepPart::update, 1); }
bool Pipeline::has_gradients() const { return impl_->parts.has_gradients(); }

void Pipeline::add_gradient_hook(const GradientHook& hook) {
  require<ConfigError>(hook != nullptr, "a gradient hook is empty: give a function of a name and a gradient");
  impl_->on_each_rank([&](rank::RankRunner& runner) { runner.updater().add_hook(hook); });
}

StateDict Pipeline::local_gradients() {
  require<ConfigError>(impl_->parts.has_gradients(), "there are no gradients: call forward_backward first");
  impl_->drain();
  std::map<WorldRank, std::vector<std::pair<std::string, torch::Tensor>>> by_rank;
  for (const auto& runner : impl_->runners->all()) by_rank[runner->context().rank] = {};
  impl_->runners->run(
      [&](rank::RankRunner& runner) { by_rank.at(runner.context().rank) = runner.updater().gradients(); });
  std::map<std::string, torch::Tensor> by_name;
  for (const auto& [rank, gradients] : by_rank) by_name.insert(gradients.begin(), gradients.end());
  StateDict in_order;
  for (const auto& item : local_state_dict())
    if (const auto gradient = by_name.find(item.key()); gradient != by_name.end())
      in_order.insert(gradient->first, gradient->second);
  return in_order;
}

void Pipeline::set_learning_rate(double rate) { impl_->jobs.set_learning_rate(rate); }
std::vector<std::string> Pipeline::freeze(const std::string& pattern) { return impl_->set_trainable(pattern, false); }
std::vector<std::string> Pipeline::unfreeze(const std::string& pattern) { return impl_->set_trainable(pattern, true); }

// Evaluation and inference.

StepResult Pipeline::evaluate(const BatchTensors& inputs, const BatchTensors& targets,
                              const std::vector<Metric>& metrics, const StepOptions& options) {
  const auto job = impl_->jobs.evaluation(inputs, targets, metrics);
  job->keeps_outputs = options.keep_outputs;
  return impl_->runners->start(job);
}

InferResult Pipeline::infer(const BatchTensors& inputs, const InferOptions& options) {
  return impl_->inferences.start(impl_->jobs.inference(inputs.list(), options));
}
InferenceSession::InferenceSession(Pipeline& pipeline) : state_(pipeline.impl_->inferences.open_session()) {}

// What the pipeline was made of.

const World& Pipeline::world() const { return impl_->world(); }
const PipelineOptions& Pipeline::options() const { return impl_->options; }
const Loss& Pipeline::loss() const { return impl_->loss; }
const StagedGraph& Pipeline::stages() const { return impl_->staged(); }
const Schedule& Pipeline::schedule() const { return impl_->full_schedule->schedule; }

// Parameters and buffers.

StateDict Pipeline::local_state_dict() {
  impl_->drain();
  // A step that has failed on one rank ends on the others a little later.
  impl_->runners->run([](rank::RankRunner&) {});
  StateParts parts;
  for (const auto& runner : impl_->runners->all())
    for (const auto& stage : runner->stages())
      for (const rank::Stage::Held& held : stage->state()) parts.try_emplace(held.place, held.name, held.value);
  return state_dict_of(parts);
}

void Pipeline::sync_ties() {
  // The program may have changed values on streams of its own.
  const auto changed = transport::DeviceEvents::of(local_state_dict().values());
  const std::uint64_t round = impl_->runners->next_gathering().step;
  impl_->runners->run([&](rank::RankRunner& runner) {
    if (changed) changed->block_current_streams();
    runner.copies().synchronise(round);
  });
}

StateDict Pipeline::state_dict(const StateFilter& which) {
  ranks_of(impl_->world()).require_own_process();
  impl_->runners->settle();
  if (const auto failure = impl_->world().failed()) throw impl_->no_state(*failure);
  impl_->drain();
  StateDict all;
  const Tag tag = impl_->runners->next_gathering();
  impl_->runners->run([&](rank::RankRunner& runner) {
    auto gathered = gather_tensors(runner.context(), tag, owned_state(runner, which));
    if (runner.context().rank == WorldRank(0)) all = std::move(gathered);
  });
  return all;
}

void Pipeline::load_state_dict(const StateDict& state) {
  impl_->drain();
  const Tag tag = impl_->runners->next_gathering();
  std::string error_text;
  impl_->runners->run([&](rank::RankRunner& runner) {
    const std::string result = state::load_values(runner.context(), tag, runner.stages(), state);
    runner.forget_last_update();
    if (runner.context().collects) error_text = result;
  });
  require<ConfigError>(error_text.empty(), error_text);
}

// Checkpoints.

std::int64_t Pipeline::training_steps() const { return static_cast<std::int64_t>(impl_->jobs.training_steps()); }

std::unique_ptr<CheckpointSaver> Pipeline::checkpoints(const SaverOptions& options) {
  impl_->checkpoint_folder = options.folder;
  return std::make_unique<CheckpointSaver>(
      state::SaverParts{.runners = impl_->runners,
                        .position =
                            [this] {
                              return state::StepsDone{training_steps(), impl_->jobs.learning_rate()};
                            },
                        .require_savable =
                            [this] {
                              impl_->parts.require_whole_steps("a checkpoint");
                              impl_->require_own_values();
                            },
                        .pipeline = impl_->number,
                        .seed = impl_->options.seed,
                        .bits = state::bit_settings(impl_->options, world(), schedule()),
                        .damaged = impl_->damaged},
      options);
}

void Pipeline::save(const std::string& folder, const CheckpointContents& contents) {
  const auto saver = checkpoints({.folder = folder});
  saver->save(contents);
  saver->finish();
}

std::optional<Manifest> Pipeline::load(const std::string& path) {
  impl_->require_own_values();
  impl_->parts.require_whole_steps("load");
  impl_->drain();
  const state::LoadedCheckpoint loaded = state::load_checkpoint(*impl_->runners, path);
  impl_->damaged = loaded.damaged;
  if (loaded.has_frozen) impl_->lower();
  if (const auto& from = loaded.manifest)
    impl_->jobs.continue_after(static_cast<std::uint64_t>(from->step), state::learning_rate_in(from->states));
  return loaded.manifest;
}

// Beside the pipeline.

std::int64_t BatchShare::samples(const BatchTensors& inputs, const BatchTensors& targets) const {
  return impl_.axes.samples(inputs, targets);
}
RowRange BatchShare::rows(std::int64_t samples) const { return impl_.jobs.share_rows(samples); }
bool BatchShare::reads_inputs() const { return impl_.runners->read_inputs(); }

std::vector<std::string> describe_stages(const Pipeline& pipeline) {
  const StagedGraph& staged = pipeline.stages();
  // A Cell's name and each beginning of it that is the name of a Cell around it, the longest last.
  const auto around = [](const std::string& cell, const auto& see) {
    for (std::size_t end = 0; end < cell.size() && end != std::string::npos;) {
      end = cell.find('.', end + 1);
      if (see(cell.substr(0, end))) return;
    }
  };
  std::map<std::string, std::vector<StageId>> stages_of;  // by Cell, one for each of its nodes
  for (std::size_t n = 0; n < staged.graph.nodes.size(); ++n)
    around(staged.graph.nodes[n].cell, [&](const std::string& cell) {
      stages_of[cell].push_back(staged.stage_of_node[n]);
      return false;
    });
  std::vector<std::string> lines;
  for (const StagePart& part : staged.parts) {
    std::vector<std::string> names;
    for (int n : part.nodes) {
      const Node& node = staged.graph.nodes[static_cast<std::size_t>(n)];
      std::string name = node.name;
      around(node.cell, [&](const std::string& cell) {
        const std::vector<StageId>& stages = stages_of.at(cell);
        const bool is_whole = std::count(stages.begin(), stages.end(), part.id) == std::ssize(stages);
        if (is_whole && stages.size() > 1) name = cell;
        return is_whole;
      });
      if (names.empty() || names.back() != name) names.push_back(std::move(name));
    }
    lines.push_back(say("stage ", part.id.value(), ":", names.empty() ? "" : " ", in_ranges(names)));
  }
  return lines;
}

void copy_state(Pipeline& pipeline, Cell& network) {
  const StateDict trained = pipeline.state_dict();
  if (pipeline.world().is_main()) network.load_state_dict(trained, Cell::Missing::keep);
}

void copy_state(Pipeline& pipeline, torch::nn::Module& network) {
  const StateDict trained = pipeline.state_dict();
  if (pipeline.world().is_main()) load_into(state_dict_of(network), trained, Cell::Missing::keep);
}

}  // namespace penstock
