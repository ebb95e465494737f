// What layers compute in.
#pragma once

namespace penstock {

/// Parameters, gradients, the loss and the optimiser are fp32 either way.
enum class Precision {
  fp32,
  bf16,  // where autocast says so: linear layers, convolutions and products of matrices; values travel as they are made
  fp16   // the same, with the loss scaled so that small gradients do not vanish (LossScaling)
};

}  // namespace penstock
