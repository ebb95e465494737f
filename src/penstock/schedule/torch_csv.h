// The CSV of torch.distributed.pipelining: one row per rank, one cell per instruction, empty cells for bubbles.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/schedule/order.h"

namespace penstock {

struct CsvOptions {
  /// false: compute instructions alone, in the columns in which they run when every instruction takes one unit, bubbles as empty
  /// cells. true: messages and REDUCE too, in order, without bubbles; a schedule that is not lowered is lowered first.
  bool messages = false;
};

/// Fused W is expanded, REDUCE becomes REDUCE_GRAD, NORM and STEP are left out; messages that lowering put into an
/// overlap pair move before it (RECV) and behind it (SEND). Rows end with CR LF, as torch's own do.
/// Throws ScheduleError for skip links, as torch's parser would read them as something else without an instruction; for a rank
/// without instructions; and, for the columns, when the schedule cannot run.
std::string write_torch_csv(const Schedule& schedule, const CsvOptions& options = {});

struct CsvSchedule {
  Schedule schedule;
  std::vector<std::string> notes;  // what was normalised while reading, for people
};

/// Stages, micro-batches and placement are taken from the instructions. Backward instructions that come out of micro-batch order
/// are split into I and a delayed W, so that every parameter still accumulates in ascending order; `notes` says so.
/// The name is left empty. Throws DataError with row and cell; UNSHARD and RESHARD are refused.
CsvSchedule read_torch_csv(std::string_view text);

}  // namespace penstock
