// A schedule as a table for the terminal: one row per rank, one column per unit of time. Every instruction
// takes one unit.
#pragma once

#include <optional>
#include <string>

#include "penstock/schedule/instruction.h"

namespace penstock {

struct GridOptions {
  std::optional<GridCell> marked;  // drawn as >0B2<
  int max_columns = 0;             // 0: all; otherwise longer rows are shortened with "..." around the marked cell
};

/// The table of `schedule` as lines of text. For example generate("1f1b", {.ranks = 2, .micro_batches = 4}):
///
///   rank 0 | 0F0 0F1  .  0B0 0F2 0B1 0F3 0B2  .  0B3
///   rank 1 |  .  1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3  .
///
/// Messages are not drawn, except the marked one. The schedule may be invalid: the table shows the instructions up to a
/// deadlock at their times, a column of "|", and then the remaining instructions of each rank in order.
std::string timeline_grid(const Schedule& schedule, const GridOptions& options = {});

}  // namespace penstock
