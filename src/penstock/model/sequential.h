// The front end for networks that exist already as a torch::nn::Sequential.
#pragma once

#include <memory>

#include "penstock/model/cell.h"

namespace penstock {

/// A Cell whose layers are the modules of `modules`, called as torch calls them: "0", "1", ... or the names they were
/// given. The pipeline starts from a copy of the modules' values and trains what they train. A module that stands there
/// twice is one layer, called twice. Throws ScheduleError when there is no module.
std::unique_ptr<Cell> from_sequential(const torch::nn::Sequential& modules);

}  // namespace penstock
