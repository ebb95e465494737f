// A schedule with its simulated times as JSON, for other programs: docs/schedule_format.md tells the form.
#pragma once

#include <string>

#include "penstock/schedule/simulate.h"

namespace penstock {

/// The number of the form: raised when a program that reads the old form would misread the new one.
constexpr int schedule_json_version = 1;

/// One JSON object; every slot on a line of its own. Throws ScheduleError when the schedule deadlocks, ConfigError for
/// costs of a wrong length.
std::string schedule_json(const Schedule& schedule, const Costs& costs);

}  // namespace penstock
