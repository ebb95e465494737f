#include "penstock/schedule/lower.h"

#include "penstock/base/error.h"

namespace penstock {
namespace {

/// Adds to one rank's list what does not come at its end.
class Lowering {
 public:
  Lowering(const Schedule& schedule, const Dependencies& dependencies, const LowerOptions& options)
      : schedule_(schedule), dependencies_(dependencies), updates_(updates_at_once(options)) {}

  static bool updates_at_once(const LowerOptions& options) { return options.step && !options.reduce && !options.norm; }

  Order operator()(const Order& order) const {
    Order lowered;
    lowered.reserve(4 * order.size());
    for (const Instruction& word : order) add(word, lowered);
    return lowered;
  }

 private:
  /// A RECV right before the word that needs it, a SEND right after its producer, a STEP behind.
  void add(const Instruction& word, Order& lowered) const {
    const StageId stage = word.stage();
    const bool forward = word.op() == Op::forward;
    const bool gives_gradient = word.op() == Op::backward || word.op() == Op::input_grad;
    const auto add_message = [&](Op op, StageId peer) {
      lowered.push_back(Instruction::message(op, stage, peer, word.micro_batch()));
    };
    const auto served = [&](const Link& link) {
      return dependencies_.crosses(link) && (forward || (gives_gradient && link.gradient));
    };
    for (const Link& link : forward ? dependencies_.incoming(stage) : dependencies_.outgoing(stage))
      if (served(link)) add_message(forward ? Op::recv_forward : Op::recv_backward, forward ? link.from : link.to);
    lowered.push_back(word);
    for (const Link& link : forward ? dependencies_.outgoing(stage) : dependencies_.incoming(stage))
      if (served(link)) add_message(forward ? Op::send_forward : Op::send_backward, forward ? link.to : link.from);
    if (updates_ && schedule_.completes_gradients(word)) lowered.push_back(Instruction::step_wide(Op::step, stage));
  }

  const Schedule& schedule_;
  const Dependencies& dependencies_;
  bool updates_;
};

}  // namespace

Schedule lower(const Schedule& schedule, const Links& links, const LowerOptions& options) {
  require<PlanError>(!schedule.is_lowered(), "schedule '", schedule.name,
                     "' is lowered already: lower what strip() gives");
  for (const Order& order : schedule.orders)
    for (const Instruction& word : order)
      require<PlanError>(word.stage().value() < schedule.stage_count(), to_string(word), " names stage ",
                         word.stage().value(), ", but there are ", schedule.stage_count(), " stages");
  for (StageId s(0); s.value() < schedule.stage_count(); s = s.next())
    require<PlanError>(schedule.rank_of(s).index() < schedule.orders.size(), "stage ", s.value(), " is given to rank ",
                       schedule.rank_of(s).value(), ", but there are ", schedule.rank_count(), " ranks");
  const Dependencies dependencies(schedule, links);
  Schedule lowered{schedule.name, schedule.micro_batches, schedule.rank_of_stage, {}};
  const Lowering lowering(schedule, dependencies, options);
  for (const Order& order : schedule.orders) lowered.orders.push_back(lowering(order));
  if (schedule.is_forward_only()) return lowered;
  const auto add_to_every_stage = [&](Op op) {
    for (StageId s(0); s.value() < schedule.stage_count(); s = s.next())
      lowered.orders[schedule.rank_of(s).index()].push_back(Instruction::step_wide(op, s));
  };
  if (options.reduce) add_to_every_stage(Op::reduce);
  if (options.norm) add_to_every_stage(Op::norm);
  if (options.step && !Lowering::updates_at_once(options)) add_to_every_stage(Op::step);
  return lowered;
}

Schedule lower(const Schedule& schedule, const LowerOptions& options) {
  return lower(schedule, chain(schedule.stage_count()), options);
}

Schedule strip(const Schedule& schedule) {
  Schedule stripped = schedule;
  for (Order& order : stripped.orders)
    std::erase_if(order, [](const Instruction& word) { return !is_compute(word.op()); });
  return stripped;
}

}  // namespace penstock
