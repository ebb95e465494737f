#include "penstock/rank/metric.h"

namespace penstock {

const Metric correct = correct_along(1);

Metric correct_along(int class_dimension) {
  const auto count = [class_dimension](const torch::Tensor& output, const torch::Tensor& target) {
    return output.argmax(class_dimension).eq(target).sum();
  };
  return {"correct",
          [count](const torch::Tensor& output, const torch::Tensor& target) {
            return static_cast<double>(count(output, target).item<std::int64_t>());
          },
          count};
}

}  // namespace penstock
