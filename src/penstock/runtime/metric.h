// Figures that are summed over the samples of a batch beside the loss.
#pragma once

#include <string>

#include "penstock/model/batch_function.h"

namespace penstock {

/// A number counted over samples, next to the loss: `count` gives the sum over one micro-batch's samples, from
/// (outputs, targets) or the outputs alone; of each the first tensor or all (model/batch_function.h).
struct Metric {
  std::string name;
  BatchFunction<double> count;
};

/// Samples whose largest logit is the target's. Output [n, classes, ...], target [n, ...].
extern const Metric correct;
/// The same with the classes along another dimension of the output: 2 for tokens, [n, T, V].
Metric correct_along(int class_dimension);

}  // namespace penstock
