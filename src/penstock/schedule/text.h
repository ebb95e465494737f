// The .sched text form: docs/schedule_format.md. read(write(x)) == x for every schedule.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/schedule/order.h"

namespace penstock {

/// Throws PlanError for what the form cannot say: words out of range, a name of several lines.
std::string write_schedule(const Schedule& schedule);

/// Throws DataError "line 7, column 12: ..." for anything that is not exactly the form.
Schedule read_schedule(std::string_view text);

/// One word, strictly: all of `word` must be it. Throws DataError. Overlap pairs are not one word.
Instruction parse_instruction(std::string_view word);

/// Reads `path` as .sched or torch CSV, by what the file says; a CSV is named after its file. What was normalised
/// while reading is told in `notes`, where given. Throws DataError naming the file.
Schedule load_schedule(const std::string& path, std::vector<std::string>* notes = nullptr);

}  // namespace penstock
