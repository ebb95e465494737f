// A schedule: one list of instructions per rank.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "penstock/base/ids.h"
#include "penstock/schedule/instruction.h"

namespace penstock {

/// One rank's list, in the order of execution.
using Order = std::vector<Instruction>;

/// The schedule of one step.
struct Schedule {
  std::string name;                 // free text; generators set their own name
  int micro_batches = 0;            // m
  std::vector<Rank> rank_of_stage;  // size S
  std::vector<Order> orders;        // size p, by rank

  int rank_count() const { return static_cast<int>(orders.size()); }
  int stage_count() const { return static_cast<int>(rank_of_stage.size()); }
  Rank rank_of(StageId stage) const { return rank_of_stage[stage.index()]; }
  std::size_t instruction_count() const;
  /// True if there is any instruction besides F, B, I and W, that is, if the schedule is the result of lower().
  bool is_lowered() const;
  /// True if there is no B, I or W: an inference or evaluation pass.
  bool is_forward_only() const;

  /// True for the instruction that completes the gradients of its stage: the B or W of the last micro-batch. Weight
  /// gradients accumulate in ascending order, which validate() checks.
  bool completes_gradients(const Instruction& instruction) const {
    return (instruction.op() == Op::backward || instruction.op() == Op::weight_grad) &&
           instruction.last().value() + 1 == micro_batches;
  }

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// The position of an instruction in a schedule.
struct GridCell {
  Rank rank;
  int position = 0;  // in the rank's order; the size of the order means "missing at the end"
};

}  // namespace penstock
