// Metrics: numbers that are summed over the samples of a batch.
#pragma once

#include <string>

#include "penstock/model/batch_function.h"

namespace penstock {

/// `count` returns the sum over one micro-batch's samples. It is a function of (outputs, targets) or of the outputs
/// alone, each of them the first tensor or all tensors (model/batch_function.h). Called on the threads of the ranks
/// that hold the last stage.
struct Metric {
  std::string name;
  BatchFunction<double> count;
  /// Optional, for devices: the same number as a scalar tensor on the device of the outputs, so that no rank waits for
  /// it between micro-batches.
  BatchFunction<torch::Tensor> count_on_device = {};
};

/// The number of samples whose largest logit is that of the target class. Output [n, classes, ...], target [n, ...]
/// with class numbers.
extern const Metric correct;
/// The same with the classes along dimension `class_dimension` of the output: 2 for tokens, [n, T, V].
Metric correct_along(int class_dimension);

}  // namespace penstock
