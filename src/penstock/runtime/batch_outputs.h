// What the network made of a batch, beside the loss.
#pragma once

#include <vector>

#include "penstock/base/split.h"
#include "penstock/base/tensor.h"

namespace penstock {

/// What the network made of a batch, next to the targets, for the rows that this process has.
struct BatchOutputs {
  std::vector<torch::Tensor> outputs;  // all that the network returns, as the loss saw it; on the CPU, without a graph
  std::vector<torch::Tensor> targets;  // as they were passed: of these rows, or whole
  RowRange rows;                       // of the whole batch; under threads all of them
};

}  // namespace penstock
