// Where generators start from: stages on ranks, and the letters of the papers. Inside this module only.
#pragma once

#include <string>

#include "penstock/schedule/generators.h"

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

}  // namespace penstock
