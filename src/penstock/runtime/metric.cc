#include "penstock/runtime/metric.h"

namespace penstock {

const Metric correct = correct_along(1);

Metric correct_along(int class_dimension) {
  return {"correct", [class_dimension](const torch::Tensor& output, const torch::Tensor& target) {
            return static_cast<double>(output.argmax(class_dimension).eq(target).sum().item<std::int64_t>());
          }};
}

}  // namespace penstock
