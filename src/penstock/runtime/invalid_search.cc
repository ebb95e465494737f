#include "penstock/runtime/invalid_search.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/layers/autocast.h"
#include "penstock/runtime/job_results.h"
#include "penstock/runtime/position.h"
#include "penstock/trace/recorder.h"
#include "penstock/world/collectives.h"
#include "penstock/world/reason.h"

namespace penstock {
namespace {

using Kind = InvalidValue::Kind;

/// Behind each name in a message.
constexpr char name_end = '\0';

std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names;
  for (std::size_t begin = 0, end = 0; (end = text.find(name_end, begin)) != std::string::npos; begin = end + 1)
    names.push_back(text.substr(begin, end - begin));
  return names;
}

/// Observes the calls of a stage while it lives.
class CheckGuard {
 public:
  CheckGuard(Stage& stage, Stage::Check check) : stage_(stage) { stage_.set_check(std::move(check)); }
  ~CheckGuard() { stage_.set_check(nullptr); }
  CheckGuard(const CheckGuard&) = delete;
  CheckGuard& operator=(const CheckGuard&) = delete;

 private:
  Stage& stage_;
};

/// What rank 0 has decided about the first values that are not finite.
struct FirstValues {
  static constexpr std::string_view record_name = "FirstValues";

  std::int32_t has_loss = 0;  // whether the second forward pass ended, with an invalid loss; its place follows
  std::int32_t replica = 0;
  std::int32_t micro_batch = 0;
  double loss = 0;
  std::int32_t kind = 0;
  std::int32_t stage = 0;
  std::int32_t has_nan = 0;
  std::int32_t nan_kind = 0;  // of InvalidStep::first_nan; Kind::none where there is none
  std::int32_t nan_stage = 0;
};

}  // namespace

StepTrouble trouble_of(const std::exception_ptr& error, Replica replica) {
  try {
    std::rethrow_exception(error);
  } catch (const NonFiniteLoss& invalid) {
    return {StepTrouble::invalid_loss, replica.value(), invalid.micro_batch().value(), invalid.loss()};
  } catch (const StepCancelled&) {
    return {StepTrouble::cancelled};
  } catch (...) {
    return {StepTrouble::other};
  }
}

InvalidSearch::InvalidSearch(const InvalidSearchParts& parts)
    : parts_(parts),
      rows_(parts.placement, parts.setting.axes, parts.setting.device),
      messages_(parts.placement, parts.graph, {std::nullopt, parts.setting.device}) {}

std::exception_ptr InvalidSearch::find(const StepJob& job, const StepTrouble& own,
                                       std::optional<std::uint64_t> last_update) {
  const StepTrouble trouble = agree_on_trouble(job, own);
  if (trouble.kind != StepTrouble::invalid_loss) return nullptr;
  run(job);
  InvalidStep invalid{.step = job.training_step,
                      .loss = trouble.loss,
                      .replica = trouble.replica,
                      .replicas = parts_.placement.context().replicas,
                      .micro_batch = trouble.micro_batch,
                      .stage = parts_.placement.last_stage().value(),
                      .last_update = last_update};
  agree_on_first(job, invalid);
  return std::make_exception_ptr(InvalidLoss(invalid));
}

Tag InvalidSearch::tag_of(const StepJob& job, int operation) const {
  return control_tag(parts_.placement.pipeline(), Topic::invalid_loss,
                     2 * job.step + static_cast<std::uint64_t>(operation));
}

// Where another error has failed the step too, some ranks may know only that one.
StepTrouble InvalidSearch::agree_on_trouble(const StepJob& job, const StepTrouble& own) const {
  const auto decide = [](const std::vector<Message>& messages) {
    StepTrouble decided;
    for (const Message& message : messages) {
      const auto trouble = record_in<StepTrouble>(message);
      const bool is_first = trouble.kind == StepTrouble::invalid_loss &&
                            (decided.kind == StepTrouble::cancelled || trouble.replica < decided.replica);
      if (decided.kind != StepTrouble::other && (is_first || trouble.kind == StepTrouble::other)) decided = trouble;
    }
    return message_of(decided);
  };
  return record_in<StepTrouble>(agree(parts_.placement.context(), tag_of(job, 0), message_of(own), decide,
                                      {.parts = "why the step failed", .decision = "why rank 0 says that it failed"}));
}

void InvalidSearch::agree_on_first(const StepJob& job, InvalidStep& invalid) const {
  std::vector<Found::Where> own;
  std::string own_names;
  for (const Found& found : found_) {
    own.push_back(found.where);
    own_names += found.name + name_end;
  }
  const auto decide = [](const std::vector<Message>& messages) {
    std::vector<Found> all;
    for (const Message& message : messages) {
      if (const std::string failure = text_in(message, 2); !failure.empty())
        return message_of(FirstValues(), std::string(), failure);
      const auto where = records_in<Found::Where>(message);
      const auto names = names_in(text_in(message, 1));
      for (std::size_t i = 0; i < where.size(); ++i) all.push_back({where[i], names.at(i)});
    }
    return first_of(std::move(all));
  };
  const Message decision =
      agree(parts_.placement.context(), tag_of(job, 1), message_of(own, own_names, failure_), decide,
            {.parts = "which values are not finite", .decision = "which value rank 0 finds to be the first"});
  const auto first = record_in<FirstValues>(decision);
  const auto names = names_in(text_in(decision, 1));
  invalid.search_failure = text_in(decision, 2);
  if (first.has_loss == 0) return;
  invalid.replica = first.replica;
  invalid.micro_batch = first.micro_batch;
  invalid.loss = first.loss;
  invalid.first = {static_cast<Kind>(first.kind), names.at(0), first.stage, first.has_nan != 0};
  if (names.size() > 1) invalid.first_nan = {static_cast<Kind>(first.nan_kind), names[1], first.nan_stage, true};
}

Message InvalidSearch::first_of(std::vector<Found> all) {
  FirstValues first;
  std::string names;
  const auto is_loss = [](const Found& found) { return found.where.kind == static_cast<std::int32_t>(Kind::loss); };
  std::sort(all.begin(), all.end(), [](const Found& a, const Found& b) { return a.where < b.where; });
  const auto loss = std::find_if(all.begin(), all.end(), is_loss);
  if (loss == all.end()) return message_of(first, names, std::string());
  first.has_loss = 1;
  first.replica = loss->where.replica;
  first.micro_batch = loss->where.micro_batch;
  first.loss = loss->where.loss;
  // Those of this micro-batch, with the parameters where the network uses them.
  std::erase_if(all, [&](const Found& found) {
    return found.where.replica != first.replica ||
           (found.where.micro_batch != first.micro_batch && found.where.micro_batch != Found::all_micro_batches);
  });
  for (Found& found : all) found.where.micro_batch = first.micro_batch;
  std::sort(all.begin(), all.end(), [](const Found& a, const Found& b) { return a.where < b.where; });
  first.kind = all.front().where.kind;
  first.stage = all.front().where.stage;
  first.has_nan = all.front().where.has_nan;
  names = all.front().name + name_end;
  const auto nan = std::find_if(all.begin(), all.end(), [](const Found& found) { return found.where.has_nan != 0; });
  if (nan == all.begin() || nan == all.end()) return message_of(first, names, std::string());
  first.nan_kind = nan->where.kind;
  first.nan_stage = nan->where.stage;
  names += nan->name + name_end;
  return message_of(first, names, std::string());
}

void InvalidSearch::run(const StepJob& job) {
  StepJob search = job;
  search.step += StepKey::search;  // messages of the step itself are cancelled
  job_ = &search;
  found_.clear();
  const Replica own = parts_.placement.replica();
  factors_ = loss_factors(parts_.setting.loss, parts_.setting.options->loss_reduction,
                          {search.targets, parts_.setting.axes.targets}, search.layout, own,
                          parts_.placement.context().replicas);
  rows_.begin(search);
  messages_.begin_step(search.step);
  failure_.clear();
  try {
    forward_pass(search);
  } catch (const PipelineCancelled&) {
    throw;
  } catch (const StepCancelled& cancelled) {
    failure_ = cancelled.what();
  } catch (const TransportError&) {
    throw;
  } catch (...) {
    // The step itself was cancelled before it met this error.
    failure_ =
        say("rank ", parts_.placement.context().rank.value(), " failed in it: ", reason_of(std::current_exception()));
    parts_.placement.endpoint().cancel({parts_.placement.pipeline(), search.step}, failure_);
  }
  parts_.histories.undo_forward(parts_.stages);
  rows_.clear();
  messages_.clear();
  job_ = nullptr;
}

void InvalidSearch::forward_pass(const StepJob& search) {
  const torch::AutoGradMode with_graph(true);  // the step's own kernels
  const CompiledSchedule& compiled = *search.forward_schedules[parts_.placement.replica().index()];
  Recorder untraced(1);
  untraced.begin_step(search.step);
  execute(compiled.programs[parts_.placement.rank().index()], *this, untraced);
  untraced.end_step();
  for (const auto& stage : parts_.stages) look_at_parameters(*stage);
}

void InvalidSearch::begin(const Instruction& instruction) {
  Position position = position_of(instruction);
  position.step = static_cast<std::int64_t>(job_->step - StepKey::search);
  parts_.placement.endpoint().report_progress(position);
}

void InvalidSearch::perform(const Instruction& instruction) {
  if (instruction.op() == Op::send_forward) return messages_.send(instruction);
  for (const auto& stage : parts_.stages)
    if (stage->id() == instruction.stage()) return forward(*stage, instruction.micro_batch());
  throw InternalError(say("the search for an invalid value cannot execute ", to_string(instruction)));
}

// As StepExecutor::forward, but keeps nothing for a backward pass.
void InvalidSearch::forward(Stage& stage, MicroBatch micro_batch) {
  const RowRange rows = rows_.of(micro_batch);
  parts_.histories.of(stage.id()).before_forward(stage, job_->training_step);
  Stage::Arrivals arrivals;
  arrivals.place = {parts_.setting.options->seed, job_->training_step, rows.begin, {}, rows.size()};
  arrivals.micro_batch = micro_batch;
  arrivals.inputs = rows_.inputs(stage.part(), micro_batch);
  arrivals.received = messages_.take_values(stage.part(), micro_batch);

  const std::int32_t number = micro_batch.value();
  for (std::size_t i = 0; i < arrivals.inputs.size(); ++i) {
    const int input = stage.part().graph_inputs[i];
    look_at(arrivals.inputs[i], {-1, Kind::input, input, stage.id(), number}, say(input));
  }
  const CheckGuard check(stage, [&](int node, const Tensors& outputs) {
    const Node& call = parts_.graph.nodes[static_cast<std::size_t>(node)];
    const Kind kind = call.is_layer() ? Kind::layer : Kind::function;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      look_at(outputs[i], {node, kind, static_cast<int>(i), stage.id(), number}, call.name);
  });
  const AutocastGuard autocast(autocast_for(parts_.setting.options->precision, parts_.setting.device.type()));
  Stage::Forwarded done = stage.forward(arrivals, [&](const Tensors& outputs) {
    look_at_loss(outputs, micro_batch);
    return torch::Tensor();
  });
  messages_.put_values(stage.part(), micro_batch, std::move(done.sends));
}

void InvalidSearch::look_at_parameters(const Stage& stage) {
  for (const Stage::Held& held : stage.state()) {
    if (held.all_uses.list.empty()) continue;
    const auto use = std::find_if(held.all_uses.list.begin(), held.all_uses.list.end(),
                                  [&](const ParameterUse& each) { return each.stage == stage.id(); });
    if (use == held.all_uses.list.end()) continue;
    look_at(held.value, {use->node, Kind::parameter, 0, stage.id(), Found::all_micro_batches}, held.name);
  }
}

void InvalidSearch::look_at_loss(const Tensors& outputs, MicroBatch micro_batch) {
  const int end = static_cast<int>(parts_.graph.nodes.size());
  const StageId last = parts_.placement.last_stage();
  const Tensors targets = rows_.targets(micro_batch);
  for (std::size_t i = 0; i < targets.size(); ++i)
    look_at(targets[i], {end, Kind::target, static_cast<int>(i), last, micro_batch.value()}, say(i));
  if (!(factors_.reported[micro_batch.index()] > 0)) return;  // all of its samples are masked
  const AutocastGuard in_fp32({.enabled = false, .device = parts_.setting.device.type()});
  const torch::Tensor loss = parts_.setting.loss(in_full_precision(parts_.setting, outputs), targets);
  look_at(loss, {end, Kind::loss, 0, last, micro_batch.value()}, parts_.setting.loss.name);
}

void InvalidSearch::look_at(const torch::Tensor& value, const Place& place, const std::string& name) {
  const torch::NoGradGuard no_grad;
  if (!value.defined() || !(value.is_floating_point() || value.is_complex()) || value.layout() != torch::kStrided)
    return;
  if (value.isfinite().all().item<bool>()) return;
  found_.push_back({{.replica = parts_.placement.replica().value(),
                     .micro_batch = place.micro_batch,
                     .node = place.node,
                     .kind = static_cast<std::int32_t>(place.kind),
                     .index = place.index,
                     .stage = place.stage.value(),
                     .has_nan = value.isnan().any().item<bool>() ? 1 : 0,
                     .loss = place.kind == Kind::loss ? value.item<double>() : 0},
                    name});
}

}  // namespace penstock
