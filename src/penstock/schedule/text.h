// The .sched text form: docs/schedule_format.md. read(write(x)) == x for every schedule.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/schedule/order.h"

namespace penstock {

/// Throws ScheduleError for what the form cannot say: instructions out of range, a name of several lines.
std::string write_schedule(const Schedule& schedule);

/// Throws DataError "line 7, column 12: ..." for anything that is not exactly the form.
Schedule read_schedule(std::string_view text);

/// One instruction, strictly: all of `word` must be it. Throws DataError. Overlap pairs are not one instruction.
Instruction parse_instruction(std::string_view instruction);

/// Reads `path` as .sched or torch CSV, by what the file says; a CSV is named after its file. What was normalised
/// while reading is told in `notes`, where given. Throws DataError naming the file.
Schedule load_schedule(const std::string& path, std::vector<std::string>* notes = nullptr);

}  // namespace penstock
