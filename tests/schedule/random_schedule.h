// Random schedules for the property tests of this module.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "penstock/schedule/schedule.h"

namespace penstock {

/// Any well-formed instruction of a schedule of this shape.
inline Instruction any_instruction(int stages, int micro_batches) {
  const auto op = static_cast<Op>(*rc::gen::inRange(0, op_count));
  const StageId stage(*rc::gen::inRange(0, stages));
  const MicroBatch i(*rc::gen::inRange(0, micro_batches));
  if (is_step_wide(op)) return Instruction::step_wide(op, stage);
  if (is_send(op) || is_receive(op)) {
    const Instruction instruction = Instruction::message(op, stage, StageId(*rc::gen::inRange(0, stages)), i);
    return faces_peer(instruction) ? instruction : Instruction::compute(Op::forward, stage, i);
  }
  if (op == Op::weight_grad && *rc::gen::inRange(0, 3) == 0)
    return Instruction::fused_weight_grad(stage, i, MicroBatch(*rc::gen::inRange(i.value(), micro_batches)));
  return Instruction::compute(op, stage, i);
}

/// A schedule of well-formed instructions in any order. It can be written and read, but is nearly always invalid.
inline Schedule any_instructions() {
  Schedule schedule;
  schedule.name = *rc::gen::container<std::string>(rc::gen::inRange(' ', '~'));
  schedule.micro_batches = *rc::gen::inRange(1, 12);
  const int ranks = *rc::gen::inRange(1, 5);
  const int stages = *rc::gen::inRange(1, 7);
  for (int s = 0; s < stages; ++s) schedule.rank_of_stage.push_back(Rank(*rc::gen::inRange(0, ranks)));
  for (int rank = 0; rank < ranks; ++rank) {
    Order& order = schedule.orders.emplace_back();
    for (int n = *rc::gen::inRange(0, 20); n > 0; --n) {
      order.push_back(any_instruction(stages, schedule.micro_batches));
      if (order.back().op() != Op::forward || *rc::gen::inRange(0, 3) > 0) continue;
      order.back() = order.back().overlapping_next();
      const Instruction between = any_instruction(stages, schedule.micro_batches);
      if (is_send(between.op()) || is_receive(between.op())) order.push_back(between);
      order.push_back(Instruction::compute(*rc::gen::element(Op::backward, Op::input_grad),
                                           StageId(*rc::gen::inRange(0, stages)), MicroBatch(0)));
    }
  }
  return schedule;
}

/// The links between neighbours and some skip links.
inline Links any_links(int stages) {
  Links links = chain(stages);
  for (int from = 0; from < stages; ++from)
    for (int to = from + 2; to < stages; ++to)
      if (*rc::gen::inRange(0, 4) == 0) links.push_back({StageId(from), StageId(to), *rc::gen::inRange(0, 2) == 0});
  return links;
}

/// A valid schedule with `links` and any placement, in which B may be split and W may be fused. It is built by
/// choosing, again and again, an instruction whose dependencies are met, so that it cannot deadlock.
inline Schedule working_schedule(int stages, const Links& links) {
  struct Done {
    int f = 0, i = 0, w = 0;
  };
  const int ranks = *rc::gen::inRange(1, stages + 1);
  const int m = *rc::gen::inRange(1, 7);
  Schedule schedule{"random", m, {}, std::vector<Order>(static_cast<std::size_t>(ranks))};
  for (int s = 0; s < stages; ++s) schedule.rank_of_stage.push_back(Rank(*rc::gen::inRange(0, ranks)));
  std::vector<Done> done(static_cast<std::size_t>(stages));

  const auto can_forward = [&](int s) {
    const int next = done[static_cast<std::size_t>(s)].f;
    return next < m && std::all_of(links.begin(), links.end(), [&](const Link& link) {
             return link.to.value() != s || done[link.from.index()].f > next;
           });
  };
  const auto can_backward = [&](int s) {
    const Done& own = done[static_cast<std::size_t>(s)];
    return own.i < own.f && std::all_of(links.begin(), links.end(), [&](const Link& link) {
             return link.from.value() != s || !link.gradient || done[link.to.index()].i > own.i;
           });
  };
  struct Choice {
    int stage;
    Op op;
  };
  for (std::vector<Choice> choices;; choices.clear()) {
    for (int s = 0; s < stages; ++s) {
      const Done& own = done[static_cast<std::size_t>(s)];
      if (can_forward(s)) choices.push_back({s, Op::forward});
      if (can_backward(s)) choices.push_back({s, Op::input_grad});
      if (can_backward(s) && own.w == own.i) choices.push_back({s, Op::backward});
      if (own.w < own.i) choices.push_back({s, Op::weight_grad});
    }
    if (choices.empty()) break;
    const Choice choice = choices[*rc::gen::inRange<std::size_t>(0, choices.size())];
    const StageId stage(choice.stage);
    Done& own = done[stage.index()];
    Order& order = schedule.orders[schedule.rank_of(stage).index()];
    if (choice.op == Op::weight_grad) {
      const int last = *rc::gen::inRange(own.w, own.i);
      order.push_back(Instruction::fused_weight_grad(stage, MicroBatch(own.w), MicroBatch(last)));
      own.w = last + 1;
      continue;
    }
    int& next = choice.op == Op::forward ? own.f : own.i;
    order.push_back(Instruction::compute(choice.op, stage, MicroBatch(next++)));
    if (choice.op == Op::backward) ++own.w;
  }
  return schedule;
}

/// Sets the overlap mark of some F's that directly precede a B or I.
inline void overlap_some(Schedule& schedule) {
  for (Order& order : schedule.orders)
    for (std::size_t k = 0; k + 1 < order.size(); ++k) {
      const Op next = order[k + 1].op();
      if (order[k].op() == Op::forward && (next == Op::backward || next == Op::input_grad) && *rc::gen::inRange(0, 2))
        order[k] = order[k].overlapping_next();
    }
}

}  // namespace penstock
