// Where generators start from: stages on ranks, and the letters of the papers. Inside this room only.
#pragma once

#include <string>

#include "penstock/schedule/generate.h"

namespace penstock {

/// An empty schedule with stage s on rank s mod p: chunk c of rank r is stage c*p + r.
Schedule placed_in_turns(std::string name, const ScheduleShape& shape);

constexpr Instruction forward(StageId stage, MicroBatch i) { return Instruction::compute(Op::forward, stage, i); }
constexpr Instruction backward(StageId stage, MicroBatch i) { return Instruction::compute(Op::backward, stage, i); }

}  // namespace penstock
