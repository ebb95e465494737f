// Where generators start from and what several of them promise: stages on ranks, the letters of the papers, bounds. Inside this module only.
#pragma once

#include <string_view>
#include <vector>

#include "penstock/schedule/generators/generators.h"

namespace penstock {

/// An empty schedule with stage s on rank s mod p: chunk c of rank r is stage c*p + r.
Schedule placed_in_turns(std::string_view name, const ScheduleShape& shape);
/// An empty schedule of two chunks per rank, down the ranks and up again: rank r has the stages r and 2p-1-r.
Schedule placed_in_v(std::string_view name, const ScheduleShape& shape);

/// The two chunks of a rank of a V: the one on the way down the ranks and the one on the way up.
enum class Leg { down, up };

constexpr StageId stage_in_v(const ScheduleShape& shape, Rank rank, Leg leg) {
  return StageId(leg == Leg::down ? rank.value() : 2 * shape.ranks - 1 - rank.value());
}

constexpr Instruction forward(StageId stage, MicroBatch i) { return Instruction::compute(Op::forward, stage, i); }
constexpr Instruction backward(StageId stage, MicroBatch i) { return Instruction::compute(Op::backward, stage, i); }
constexpr Instruction input_grad(StageId stage, MicroBatch i) { return Instruction::compute(Op::input_grad, stage, i); }
constexpr Instruction weight_grad(StageId stage, MicroBatch i) {
  return Instruction::compute(Op::weight_grad, stage, i);
}

// What several of them promise.

/// The same bound for every rank.
std::vector<int> for_every_rank(const ScheduleShape& shape, int bound);
/// min(m, p - s) on rank s: 1F1B's bound.
std::vector<int> hold_depth(const ScheduleShape& shape, const Tuning& tuning);
/// (p - 1)(F + I + W): the bubble of GPipe and 1F1B, and with a stage's costs that of their looped forms.
double fill_and_drain(const ScheduleShape& shape, const Costs& costs);

}  // namespace penstock
