// What is wrong with a schedule before it is even run: instructions out of place, missing, or there twice. Inside this module
// only: validate reports it, simulate and grid keep clear of what they could not run.
#pragma once

#include <optional>
#include <string>

#include "penstock/schedule/dependencies.h"
#include "penstock/schedule/order.h"

namespace penstock {

struct Violation {
  std::string reason;
  std::optional<GridCell> cell;
};

/// The first instruction that names a stage, micro-batch or peer that is not there, stands on a rank that does not own its
/// stage, or breaks an overlap pair; and a schedule that has far too few instructions to be complete, however they are
/// ordered. After this, tables of stages times micro-batches have at most eight entries for every instruction.
std::optional<Violation> find_misplaced(const Schedule& schedule);

/// The first instruction that is missing, there twice, or a message along no link. `schedule` has no misplaced instructions.
std::optional<Violation> find_incomplete(const Schedule& schedule, const Dependencies& dependencies);

/// True when a schedule without misplaced instructions may be replayed as it is, complete or not, in linear time and memory:
/// its messages go along links, and no table or list of needs outgrows the schedule.
bool is_replayable(const Schedule& schedule, const Dependencies& dependencies);

/// "1F3 comes after 1F4": the first break of the ascending micro-batch order.
std::optional<Violation> find_disorder(const Schedule& schedule);

}  // namespace penstock
