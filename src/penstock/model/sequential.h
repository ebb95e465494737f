// The front end for networks that exist already as a torch::nn::Sequential.
#pragma once

#include <memory>

#include <torch/nn/modules/container/sequential.h>

#include "penstock/model/cell.h"

namespace penstock {

/// A Cell whose layers are the modules of `modules`, called "0", "1", ... as torch calls them. The pipeline starts from
/// a copy of the modules' values. A module that stands there twice shares its values.
std::unique_ptr<Cell> from_sequential(const torch::nn::Sequential& modules);

}  // namespace penstock
