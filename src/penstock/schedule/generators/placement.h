// The functions that several generators share: placements of stages on ranks, short names for instructions, bounds of
// activations, formulas of bubbles, and the order of one stage per rank. Inside this module only.
#pragma once

#include <vector>

#include "penstock/schedule/generator.h"

namespace penstock {

/// A schedule without name and instructions, with stage s on rank s mod p: chunk c of rank r is stage c*p + r.
Schedule placed_round_robin(const ScheduleShape& shape);
/// A schedule without name and instructions, with the stages in a zigzag: down the ranks 0..p-1, up again, and so on.
/// Two chunks make a V: rank r has the stages r and 2p-1-r.
Schedule placed_in_zigzag(const ScheduleShape& shape);

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

/// The distances between the instructions of a stage, in micro-batches.
struct Drift {
  int warm_up = 1;  // forwards before the first I; F stays so far ahead of I until the last F
  int lag = 0;      // I stays so far ahead of W until the last I
};

/// The instructions of `stage` for `micro_batches` micro-batches: the forwards of the warm-up, then I, W and F
/// alternately, then the remaining I's and W's. At most `warm_up + lag` micro-batches are live.
Order alternating_order(StageId stage, MicroBatch micro_batches, Drift drift);

}  // namespace penstock
