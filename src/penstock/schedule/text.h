// The .sched text format (docs/schedule_format.md): read_schedule(write_schedule(x)) == x for every schedule.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "penstock/schedule/instruction.h"

namespace penstock {

/// `schedule` as text. Throws ScheduleError for a schedule that the format cannot represent: instructions out of range,
/// a name with several lines.
std::string write_schedule(const Schedule& schedule);

/// Reads the format. Comments (from '#' to the end of a line, but not after `name`), empty lines, several spaces and CRLF
/// are accepted. Throws DataError "line 7, column 12: ..." for any other deviation. Does not call validate().
Schedule read_schedule(std::string_view text);

/// One instruction: all of `instruction` must be its text. Throws DataError, also for an overlap pair.
Instruction parse_instruction(std::string_view instruction);

/// Reads the file `path`, as .sched if it begins with "penstock" (after comments) and as torch CSV otherwise. A schedule from a CSV gets
/// the name of the file. If `notes` is not null, it receives what read_torch_csv() normalised. Throws DataError, which
/// names the file.
Schedule load_schedule(const std::string& path, std::vector<std::string>* notes = nullptr);

}  // namespace penstock
