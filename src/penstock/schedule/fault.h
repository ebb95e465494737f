// What is wrong with a schedule before it is even run: words out of place, missing, or there twice. Inside this room
// only: judge reports it, simulate and board keep clear of what they could not run.
#pragma once

#include <optional>
#include <string>

#include "penstock/schedule/judge.h"

namespace penstock {

struct Fault {
  std::string reason;
  std::optional<BoardCell> cell;
};

/// The first word that names a stage, micro-batch or peer that is not there, stands on a rank that does not own its
/// stage, or breaks an overlap pair; and a schedule that has far too few words to be complete, however they are
/// ordered. After this, tables of stages times micro-batches have at most eight entries for every word.
std::optional<Fault> find_misplaced(const Schedule& schedule);

/// The first word that is missing, there twice, or a message along no link. `schedule` has no misplaced words.
std::optional<Fault> find_incomplete(const Schedule& schedule, const Dependencies& dependencies);

/// True when a schedule without misplaced words may be replayed as it is, complete or not, in linear time and memory:
/// its messages go along links, and no table or list of needs outgrows the schedule.
bool is_replayable(const Schedule& schedule, const Dependencies& dependencies);

/// "1F3 comes after 1F4": the first break of the ascending micro-batch order.
std::optional<Fault> find_disorder(const Schedule& schedule);

}  // namespace penstock
