// The value that this module is about: one list of instructions per rank.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "penstock/base/ids.h"
#include "penstock/schedule/instruction.h"

namespace penstock {

/// One rank's list, in the order of execution.
using Order = std::vector<Instruction>;

/// A complete plan of one step.
struct Schedule {
  std::string name;                 // free text; the generator's name where one made it
  int micro_batches = 0;            // m
  std::vector<Rank> rank_of_stage;  // size S
  std::vector<Order> orders;        // size p, by rank

  int rank_count() const { return static_cast<int>(orders.size()); }
  int stage_count() const { return static_cast<int>(rank_of_stage.size()); }
  Rank rank_of(StageId stage) const { return rank_of_stage[stage.index()]; }
  std::size_t instruction_count() const;
  /// True when any rank sends, receives, reduces or steps: the schedule has been through `lower`.
  bool is_lowered() const;
  /// True when there is no B, I or W: an inference or evaluation pass.
  bool is_forward_only() const;

  /// True for the instruction with which the gradients of its stage are whole: the B or W of its last micro-batch, as weight
  /// gradients accumulate in ascending order (validate() sees to that).
  bool completes_gradients(const Instruction& instruction) const {
    return (instruction.op() == Op::backward || instruction.op() == Op::weight_grad) &&
           instruction.last().value() + 1 == micro_batches;
  }

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// An instruction of the schedule, by position.
struct GridCell {
  Rank rank;
  int position = 0;  // within the rank's order; its size means "missing at the end"
};

}  // namespace penstock
