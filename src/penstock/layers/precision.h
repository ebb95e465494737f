// The public header of the module `layers`: the precision of a network's layers.
#pragma once

namespace penstock {

/// Parameters, gradients, the loss and the optimiser are fp32 in every precision.
enum class Precision {
  fp32,
  bf16,  // forward under autocast: linear layers, convolutions and matrix products compute in bf16
  fp16   // the same in fp16, with a scaled loss so that small gradients do not vanish (LossScaling)
};

constexpr const char* to_string(Precision precision) {
  switch (precision) {
    case Precision::fp32: return "fp32";
    case Precision::bf16: return "bf16";
    case Precision::fp16: return "fp16";
  }
  return "";
}

}  // namespace penstock
