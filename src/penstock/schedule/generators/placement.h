// The functions that several generators share: placements of stages on ranks, short names for instructions, bounds of
// activations and formulas of bubbles. Inside this module only.
#pragma once

#include <string_view>
#include <vector>

#include "penstock/schedule/generators/generators.h"

namespace penstock {

/// A schedule without instructions, with stage s on rank s mod p: chunk c of rank r is stage c*p + r.
Schedule placed_round_robin(std::string_view name, const ScheduleShape& shape);
/// A schedule without instructions, with two chunks per rank placed in a V: rank r has the stages r and 2p-1-r.
Schedule placed_in_v(std::string_view name, const ScheduleShape& shape);

/// The two chunks of a rank in a V placement. The stages 0..p-1 lead down the ranks, the others up again.
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

/// `bound` for every rank.
std::vector<int> for_every_rank(const ScheduleShape& shape, int bound);
/// The bound of 1F1B: min(m, p - s) on rank s.
std::vector<int> hold_depth(const ScheduleShape& shape, const Tuning& tuning);
/// (p - 1)(F + I + W): the bubble of GPipe and 1F1B and, with the costs of one chunk, of their looped forms.
double fill_and_drain(const ScheduleShape& shape, const StageCosts& costs);

}  // namespace penstock
