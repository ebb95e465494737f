#include "penstock/rank/invalid_search.h"

#include <utility>

#include "penstock/base/error.h"
#include "penstock/rank/job.h"
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
    return nan.empty() || nan == name ? cause
                                      : say(name, " is infinite, and ", nan, " is the first that is not a number");
  }
};

/// How the step failed on one rank.
struct StepTrouble {
  static constexpr std::string_view record_name = "StepTrouble";
  enum Kind : std::int32_t { cancelled, invalid_loss, other };
  std::int32_t kind = cancelled;
  std::int32_t replica = 0;
  std::int32_t micro_batch = 0;
  std::int32_t parameter_stage = 0;  // of the parameter whose name follows, if any
  double loss = 0;
};

/// An input of a micro-batch that is not finite.
struct SpoiledInput {
  static constexpr std::string_view record_name = "SpoiledInput";
  std::int32_t replica = 0;
  std::int32_t micro_batch = 0;
  std::int32_t input = 0;
};

Message message_of_rank(const StagePlacement& placement, const RankStages& stages, const RankSetting& setting,
                        const StepJob& job, const std::exception_ptr& own) {
  StepTrouble trouble{.replica = placement.replica().value()};
  std::string cause, parameter;
  std::vector<SpoiledInput> inputs;
  try {
    std::rethrow_exception(own);
  } catch (const NonFiniteLoss& invalid) {
    trouble = {StepTrouble::invalid_loss, trouble.replica, invalid.micro_batch().value(), 0, invalid.loss()};
    cause = invalid.cause;
  } catch (const StepCancelled&) {
  } catch (...) {
    trouble.kind = StepTrouble::other;
  }
  BatchRows rows(placement, setting.axes, setting.device);
  rows.begin(job);
  for (const auto& stage : stages) {
    for (const Stage::Held& held : stage->state())
      if (parameter.empty() && !held.is_buffer() && !is_finite(held.value))
        parameter = held.name, trouble.parameter_stage = stage->id().value();
    if (stage->part().graph_inputs.empty()) continue;
    for (MicroBatch i(0); i.value() < rows.micro_batches(); i = i.next()) {
      const Tensors read = rows.inputs(stage->part(), i);
      for (std::size_t input = 0; input < read.size(); ++input)
        if (!is_finite(read[input])) inputs.push_back({trouble.replica, i.value(), stage->part().graph_inputs[input]});
    }
  }
  return message_of(trouble, cause, parameter, inputs);
}

/// Decides for all ranks. Where another error has failed the step too, some ranks may know only that one.
Message decided(const std::vector<Message>& messages) {
  StepTrouble first, spoiled{.parameter_stage = -1};
  std::string cause, parameter;
  for (const Message& message : messages) {
    const auto trouble = record_in<StepTrouble>(message);
    if (trouble.kind == StepTrouble::other) return message_of(trouble, cause, parameter);
    if (const std::string name = text_in(message, 2);
        !name.empty() && (parameter.empty() || trouble.parameter_stage < spoiled.parameter_stage))
      parameter = name, spoiled = trouble;
    if (trouble.kind != StepTrouble::invalid_loss) continue;
    if (first.kind == StepTrouble::cancelled || trouble.replica < first.replica)
      first = trouble, cause = text_in(message, 1);
  }
  for (const Message& message : messages)
    for (const SpoiledInput& input : records_in<SpoiledInput>(message, 3))
      if (input.replica == first.replica && input.micro_batch == first.micro_batch)
        cause = say("input ", input.input, " of the batch is not finite");
  first.parameter_stage = spoiled.parameter_stage;
  return message_of(first, cause, parameter);
}

}  // namespace

std::string cause_of(const InvalidForward& forward) {
  FirstValues first;
  const StagePart& part = forward.stage.part();
  const std::string here = say("(stage ", part.id.value(), ")");
  for (std::size_t port = 0; port < forward.arrivals.received.size(); ++port)
    for (std::size_t i = 0; i < part.receives[port].values.size(); ++i)
      first.look_at(forward.arrivals.received[port].payloads[i].tensor,
                    say("the output of '", forward.graph.name_of(part.receives[port].values[i]), "' (stage ",
                        part.receives[port].peer.value(), "), which stage ", part.id.value(), " receives,"));
  forward.stage.set_check([&](int node, const Tensors& outputs) {
    const Node& call = forward.graph.nodes[static_cast<std::size_t>(node)];
    for (const torch::Tensor& output : outputs)
      first.look_at(output, say("the output of ", call.is_layer() ? "layer" : "function", " '", call.name, "' ", here),
                    ", though its inputs and parameters are");
  });
  try {
    forward.stage.forward(forward.arrivals, [&](const Tensors& outputs) {
      for (std::size_t i = 0; i < forward.targets.size(); ++i)
        first.look_at(forward.targets[i], say("target ", i, " of the batch"));
      first.look_at(forward.loss(outputs), say("the loss ('", forward.loss_name, "')"), ", though its arguments are");
      return torch::Tensor();
    });
  } catch (const std::exception&) {
    first.cause =
        say("no layer can be named, because a second forward pass failed (", reason_of(std::current_exception()), ")");
    first.nan.clear();
  }
  forward.stage.set_check(nullptr);
  if (!first.cause.empty()) return first.text();
  return "no layer can be named, because a second forward pass of the micro-batch is finite: a layer or the loss has a "
         "state other than its parameters and buffers";
}

std::exception_ptr agreed_invalid_loss(const StagePlacement& placement, const RankStages& stages,
                                       const RankSetting& setting, const StepJob& job, const std::exception_ptr& own,
                                       std::optional<std::uint64_t> last_update) {
  const Message decision = agree(placement.context(), control_tag(placement.pipeline(), Topic::invalid_loss, job.step),
                                 message_of_rank(placement, stages, setting, job, own), decided,
                                 {.parts = "why the step failed", .decision = "why rank 0 says that it failed"});
  const auto trouble = record_in<StepTrouble>(decision);
  if (trouble.kind != StepTrouble::invalid_loss) return nullptr;
  InvalidStep invalid{.step = job.training_step,
                      .loss = trouble.loss,
                      .replica = trouble.replica,
                      .replicas = placement.context().replicas,
                      .micro_batch = trouble.micro_batch,
                      .stage = placement.last_stage().value(),
                      .cause = text_in(decision, 1)};
  if (const std::string parameter = text_in(decision, 2); !parameter.empty()) {
    invalid.spoiled_by = last_update;
    invalid.cause = say("parameter '", parameter, "' (stage ", trouble.parameter_stage, ") is not finite");
    invalid.cause += last_update ? say(" since the update of training step ", *last_update, " at the latest")
                                 : ", and no update has changed it";
  }
  return std::make_exception_ptr(InvalidLoss(invalid));
}

}  // namespace penstock
