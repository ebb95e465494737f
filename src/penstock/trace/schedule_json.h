// A schedule with its simulated times as JSON, for other programs (docs/schedule_format.md).
#pragma once

#include <string>

#include "penstock/schedule/simulate.h"

namespace penstock {

/// The version of the format, incremented when a program that reads the old format would misread the new one.
constexpr int schedule_json_version = 1;

/// One JSON object, with every slot on its own line. Throws like simulate().
std::string schedule_json(const Schedule& schedule, const StageCosts& costs);

}  // namespace penstock
