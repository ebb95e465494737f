// The CSV format of torch.distributed.pipelining: one row per rank, one cell per instruction, empty cells for bubbles.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/schedule/instruction.h"

namespace penstock {

struct CsvOptions {
  /// false: compute instructions only. Each is in the column of its start time when every instruction takes one unit,
  /// and empty cells are bubbles. true: also messages and REDUCE, in order, without bubbles; a schedule that is not
  /// lowered is lowered first.
  bool messages = false;
};

/// `schedule` as CSV. A fused W is expanded, REDUCE becomes REDUCE_GRAD, NORM and STEP are left out; messages inside an
/// overlap pair move before it (RECV) or after it (SEND). Rows end with CR LF, as torch's own do.
/// Throws ScheduleError for skip links, which torch's parser would silently misread; for a rank without instructions;
/// and, without `messages`, for a schedule that cannot run.
std::string write_torch_csv(const Schedule& schedule, const CsvOptions& options = {});

struct CsvSchedule {
  Schedule schedule;
  std::vector<std::string> notes;  // what the reader normalised, one sentence each, for people
};

/// Reads a CSV with or without messages. Stages, micro-batches and placement are inferred from the instructions. A B
/// that is out of micro-batch order is split into I and a delayed W, so that every parameter accumulates its gradient
/// in ascending order; `notes` reports it. The name of the schedule is empty. Throws DataError, which names row and
/// cell; UNSHARD and RESHARD are refused. Does not validate the schedule.
CsvSchedule read_torch_csv(std::string_view text);

}  // namespace penstock
