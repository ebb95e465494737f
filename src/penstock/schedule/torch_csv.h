// The CSV of torch.distributed.pipelining: one row per rank, one cell per word, empty cells for bubbles.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/schedule/schedule.h"

namespace penstock {

struct CsvOptions {
  bool messages = false;  // false: compute words only, with bubbles as empty cells
};

/// Fused W is expanded, REDUCE becomes REDUCE_GRAD, NORM and STEP are left out.
/// Throws PlanError for skip links: torch's parser would read them as something else without a word.
std::string write_torch_csv(const Schedule& schedule, const CsvOptions& options = {});

struct CsvSchedule {
  Schedule schedule;
  std::vector<std::string> notes;  // what was normalised while reading, for people
};

/// Stages, micro-batches and placement are taken from the words. Backward words that come out of micro-batch order
/// are split into I and a delayed W, so that every parameter still accumulates in ascending order; `notes` says so.
/// Throws DataError with row and cell.
CsvSchedule read_torch_csv(std::string_view text);

}  // namespace penstock
