// The violations that are found without a replay: instructions that are out of place, missing, duplicated or out of
// order. validate() reports them; simulate() and timeline_grid() use the checks to avoid schedules that they cannot
// replay. Inside this module only.
#pragma once

#include <optional>
#include <string>

#include "penstock/schedule/dependencies.h"
#include "penstock/schedule/instruction.h"

namespace penstock {

struct Violation {
  std::string reason;
  std::optional<GridCell> cell;
};

/// A number of micro-batches, stages or ranks that no schedule has.
std::optional<Violation> bad_header(const Schedule& schedule);
/// A stage on a rank, or a micro-batch in a pipeline, that does not exist.
std::optional<Violation> bad_placement(const Schedule& schedule);
/// The first instruction in the list of rank `rank` that breaks an overlap pair: F, then B or I, with only messages
/// between.
std::optional<Violation> broken_pair(const Order& order, std::size_t rank);

/// The first instruction that names a stage, micro-batch or peer that does not exist, is on a rank that does not own
/// its stage, or breaks an overlap pair. Also reports a schedule with far too few instructions to be complete: in all
/// other schedules, a table of stages times micro-batches has at most eight entries per instruction.
std::optional<Violation> find_misplaced(const Schedule& schedule);

/// The first instruction that is duplicated, is a message that belongs to no link, or is missing. `schedule` must have
/// no misplaced instructions.
std::optional<Violation> find_incomplete(const Schedule& schedule, const Dependencies& dependencies);

/// True if a schedule without misplaced instructions, complete or not, can be replayed in linear time and memory: all
/// its messages belong to links, and the number of dependencies is proportional to the number of instructions.
bool is_replayable(const Schedule& schedule, const Dependencies& dependencies);

/// The first instruction that breaks the ascending micro-batch order.
std::optional<Violation> find_disorder(const Schedule& schedule);

}  // namespace penstock
