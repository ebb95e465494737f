// Makes a Cell from an existing torch::nn::Sequential.
#pragma once

#include <memory>

#include "penstock/model/cell.h"

namespace penstock {

/// Returns a Cell whose layers are the modules of `modules`, under torch's names for them: "0", "1", ... or the names
/// they were given. The pipeline starts from a copy of the modules' values and trains the parameters that require
/// gradients. A module that occurs twice is one layer that is called twice. Throws ScheduleError if `modules` is empty.
std::unique_ptr<Cell> from_sequential(const torch::nn::Sequential& modules);

}  // namespace penstock
