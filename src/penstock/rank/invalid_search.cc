#include "penstock/rank/invalid_search.h"

#include "penstock/base/error.h"
#include "penstock/layers/thread_scopes.h"
#include "penstock/rank/job_results.h"
#include "penstock/rank/result.h"
#include "penstock/world/collectives.h"
#include "penstock/world/failures.h"

namespace penstock {
namespace {

bool is_finite(const torch::Tensor& value) {
  const torch::NoGradGuard no_grad;
  return !value.defined() || !(value.is_floating_point() || value.is_complex()) || value.layout() != torch::kStrided ||
         value.isfinite().all().item<bool>();
}

/// The first values that are not finite. An infinity may be meant, as in a mask, so the first NaN is named beside it.
struct FirstValues {
  std::string name, cause, nan;

  void look_at(const torch::Tensor& value, const std::string& of, const std::string& comment = "") {
    if (!nan.empty() || is_finite(value)) return;
    if (name.empty()) name = of, cause = say(of, " is not finite", comment);
    if (value.isnan().any().item<bool>()) nan = of;
  }
  std::string text() const {
    if (!nan.empty() && nan != name) return say(name, " is infinite, and ", nan, " is the first that is not a number");
    return !cause.empty() ? cause
                          : "no layer can be named, because a second forward pass of the micro-batch is finite: a "
                            "layer or the loss has a state other than its parameters and buffers";
  }
};

/// How the step failed on one rank.
struct StepTrouble {
  static constexpr std::string_view record_name = "StepTrouble";
  enum Kind : std::int32_t { cancelled, invalid_loss, other };
  std::int32_t kind = cancelled;
  std::int32_t replica = 0;
  std::int32_t micro_batch = 0;
  double loss = 0;
};

/// An input of a micro-batch that is not finite.
struct SpoiledInput {
  static constexpr std::string_view record_name = "SpoiledInput";
  std::int32_t replica = 0, micro_batch = 0, input = 0;
};

/// Decides for all ranks, from the trouble, cause, parameter and inputs of each. If another error has failed the step
/// too, some ranks may know only that one.
Message decided(const std::vector<Message>& messages) {
  StepTrouble first;
  std::string cause, parameter;
  for (const Message& message : messages) {
    const auto trouble = record_in<StepTrouble>(message);
    if (trouble.kind == StepTrouble::other) return message_of(trouble, cause, parameter);
    if (parameter.empty()) parameter = text_in(message, 2);
    if (trouble.kind == StepTrouble::invalid_loss && first.kind == StepTrouble::cancelled)
      first = trouble, cause = text_in(message, 1);
  }
  for (const Message& message : messages)
    for (const SpoiledInput& spoiled : records_in<SpoiledInput>(message, 3))
      if (spoiled.replica == first.replica && spoiled.micro_batch == first.micro_batch)
        cause = say("input ", spoiled.input, " of the batch is not finite");
  return message_of(first, cause, parameter);
}

}  // namespace

std::string cause_of(const LastForward& last, MicroBatch micro_batch) {
  const StagePart& part = last.stage.part();
  const StepJob& job = last.job;
  const RankSetting& setting = last.setting;
  const RowRange rows = last.rows.of(micro_batch);
  if (last.arrivals.micro_batch != micro_batch && !part.receives.empty())
    return "no layer is named, because the device has reported the loss after later micro-batches";

  FirstValues first;
  for (std::size_t port = 0; port < last.arrivals.received.size(); ++port)
    for (std::size_t i = 0; i < part.receives[port].values.size(); ++i)
      first.look_at(last.arrivals.received[port].payloads[i].tensor,
                    say("the output of '", last.graph.name_of(part.receives[port].values[i]), "' (stage ",
                        part.receives[port].peer.value(), "), which stage ", part.id.value(), " receives,"));
  last.stage.set_check([&](int node, const Tensors& outputs) {
    const Node& call = last.graph.nodes[static_cast<std::size_t>(node)];
    const std::string name = say("the output of ", call.is_layer() ? "layer" : "function", " '", call.name, "' (stage ",
                                 part.id.value(), ")");
    for (const torch::Tensor& output : outputs) first.look_at(output, name, ", though its inputs and parameters are");
  });
  try {
    const AutocastGuard autocast(autocast_for(setting.options->precision, setting.device.type()));
    const Tensors targets = last.rows.targets(micro_batch);
    const RandomPlace place{setting.options->seed, job.training_step, rows.begin, {}, rows.size()};
    const Tensors inputs = last.rows.inputs(part, micro_batch);
    last.stage.forward({last.arrivals.received, inputs, place, micro_batch}, [&](const Tensors& outputs) {
      for (std::size_t i = 0; i < targets.size(); ++i) first.look_at(targets[i], say("target ", i, " of the batch"));
      const AutocastGuard in_fp32({.enabled = false, .device = setting.device.type()});
      first.look_at(setting.loss(in_full_precision(setting, outputs), targets),
                    say("the loss ('", setting.loss.name, "')"), ", though its arguments are");
      return torch::Tensor();
    });
  } catch (const std::exception& error) {
    first = {};
    first.cause = say("no layer can be named, because a second forward pass failed (", reason_of(error), ")");
  }
  last.stage.set_check(nullptr);
  return first.text();
}

std::exception_ptr agreed_invalid_loss(const StagePlacement& placement, const RankStages& stages,
                                       const RankSetting& setting, const StepJob& job, const std::exception_ptr& own,
                                       std::optional<std::uint64_t> last_update) {
  StepTrouble trouble{.replica = placement.replica().value()};
  std::string cause, parameter;
  try {
    std::rethrow_exception(own);
  } catch (const NonFiniteLoss& invalid) {
    trouble = {StepTrouble::invalid_loss, trouble.replica, invalid.micro_batch().value(), invalid.loss()};
    cause = invalid.cause;
  } catch (const StepCancelled&) {
  } catch (...) {
    trouble.kind = StepTrouble::other;
  }
  std::vector<SpoiledInput> inputs;
  BatchRows rows(placement, setting.axes, setting.device);
  rows.begin(job);
  for (const auto& stage : stages) {
    for (const Stage::Held& held : stage->state())
      if (parameter.empty() && !held.is_buffer() && !is_finite(held.value))
        parameter = say("parameter '", held.name, "' (stage ", stage->id().value(), ") is not finite");
    for (MicroBatch i(0); i.value() < rows.micro_batches() && !stage->part().graph_inputs.empty(); i = i.next()) {
      const Tensors read = rows.inputs(stage->part(), i);
      for (std::size_t input = 0; input < read.size(); ++input)
        if (!is_finite(read[input])) inputs.push_back({trouble.replica, i.value(), stage->part().graph_inputs[input]});
    }
  }

  const Message decision = agree(placement.context(), control_tag(placement.pipeline(), Topic::invalid_loss, job.step),
                                 message_of(trouble, cause, parameter, inputs), decided,
                                 {.parts = "why the step failed", .decision = "why rank 0 says that it failed"});
  trouble = record_in<StepTrouble>(decision);
  if (trouble.kind != StepTrouble::invalid_loss) return nullptr;
  InvalidStep invalid{.step = job.training_step,
                      .loss = trouble.loss,
                      .replica = trouble.replica,
                      .replicas = placement.context().replicas,
                      .micro_batch = trouble.micro_batch,
                      .stage = placement.last_stage().value(),
                      .cause = text_in(decision, 1)};
  if (parameter = text_in(decision, 2); !parameter.empty()) {
    invalid.spoiled_by = last_update;
    invalid.cause = last_update ? say(parameter, " since the update of training step ", *last_update, " at the latest")
                                : parameter + ", and no update has changed it";
  }
  return std::make_exception_ptr(InvalidLoss(invalid));
}

}  // namespace penstock
