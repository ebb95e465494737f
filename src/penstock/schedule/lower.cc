#include "penstock/schedule/lower.h"

#include "penstock/base/error.h"
#include "penstock/schedule/violation.h"

namespace penstock {
namespace {

/// One rank's list with its messages: a RECV right before the instruction that needs it, a SEND right after its
/// producer. If `updates` is set, also with a STEP after the instruction that completes the gradients of its stage.
Order with_messages(const Schedule& schedule, Rank rank, const Dependencies& dependencies, bool updates) {
  const Order& order = schedule.orders[rank.index()];
  Order lowered;
  lowered.reserve(4 * order.size());
  for (const Instruction& instruction : order) {
    const StageId stage = instruction.stage();
    const MicroBatch i = instruction.micro_batch();
    const bool forward = instruction.op() == Op::forward;
    const bool gives_gradient = instruction.op() == Op::backward || instruction.op() == Op::input_grad;
    const auto add = [&](Op op, StageId peer) { lowered.push_back(Instruction::message(op, stage, peer, i)); };
    const auto has_message = [&](const Link& link) {
      return dependencies.crosses(link, i) && (forward || (gives_gradient && link.gradient));
    };
    for (const Link& link : forward ? dependencies.incoming(stage) : dependencies.outgoing(stage))
      if (has_message(link)) add(forward ? Op::recv_forward : Op::recv_backward, forward ? link.from : link.to);
    lowered.push_back(instruction);
    for (const Link& link : forward ? dependencies.outgoing(stage) : dependencies.incoming(stage))
      if (has_message(link)) add(forward ? Op::send_forward : Op::send_backward, forward ? link.to : link.from);
    if (updates && schedule.completes_gradients(instruction))
      lowered.push_back(Instruction::step_wide(Op::step, stage));
  }
  return lowered;
}

}  // namespace

Schedule lower(const Schedule& schedule, const Links& links, const LowerOptions& options) {
  require<ScheduleError>(!schedule.is_lowered(), "schedule '", schedule.name,
                         "' is lowered already: lower the result of strip()");
  for (const Order& order : schedule.orders)
    for (const Instruction& instruction : order)
      require<ScheduleError>(instruction.stage().value() < schedule.stage_count(), to_string(instruction),
                             " names stage ", instruction.stage().value(), ", but there are ", schedule.stage_count(),
                             " stages");
  if (const auto violation = bad_placement(schedule)) throw ScheduleError(violation->reason);
  const Dependencies dependencies(schedule, links);
  Schedule lowered = schedule;
  lowered.orders.clear();
  const bool reduces = options.reduce || schedule.pipeline_count() > 1;
  const bool updates_at_once = options.step && !reduces && !options.norm;
  for (Rank rank(0); rank.value() < schedule.rank_count(); rank = rank.next())
    lowered.orders.push_back(with_messages(schedule, rank, dependencies, updates_at_once));
  if (schedule.is_forward_only()) return lowered;
  const auto add_to_every_stage = [&](Op op) {
    for (StageId s(0); s.value() < schedule.stage_count(); s = s.next())
      for (int pipeline = 0; pipeline < schedule.pipeline_count(); ++pipeline) {
        const Rank rank = schedule.placement(pipeline)[s.index()];
        if (schedule.copy_on(s, rank) == pipeline)
          lowered.orders[rank.index()].push_back(Instruction::step_wide(op, s));
      }
  };
  if (reduces) add_to_every_stage(Op::reduce);
  if (options.norm) add_to_every_stage(Op::norm);
  if (options.step && !updates_at_once) add_to_every_stage(Op::step);
  return lowered;
}

Schedule lower(const Schedule& schedule, const LowerOptions& options) {
  return lower(schedule, chain(schedule.stage_count()), options);
}

Schedule strip(const Schedule& schedule) {
  Schedule stripped = schedule;
  for (Order& order : stripped.orders)
    std::erase_if(order, [](const Instruction& instruction) { return !is_compute(instruction.op()); });
  return stripped;
}

}  // namespace penstock
