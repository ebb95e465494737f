// The network's outputs for a batch.
#pragma once

#include <vector>

#include "penstock/base/split.h"
#include "penstock/base/tensor.h"

namespace penstock {

/// The outputs and targets of the rows that this process computes.
struct BatchOutputs {
  std::vector<torch::Tensor> outputs;  // all values that the network returns; on the CPU, without a graph
  std::vector<torch::Tensor> targets;  // of the same rows; tensors without samples unchanged
  RowRange rows;                       // the rows within the whole batch; under threads all of them
};

}  // namespace penstock
