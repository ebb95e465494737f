#include "penstock/rank/result.h"

#include <cmath>

#include "penstock/base/error.h"

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

std::string text_of(const InvalidStep& invalid) {
  const std::string of_replica = invalid.replicas > 1 ? say(" of replica ", invalid.replica) : "";
  return say("the loss of training step ", invalid.step, " is ", text_of_loss(invalid.loss), " in micro-batch ",
             invalid.micro_batch, of_replica, " (stage ", invalid.stage, "): ", invalid.cause);
}

bool is_invalid_loss(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const InvalidLoss&) {
    return true;
  } catch (...) {
    return false;
  }
}

std::string text_of_loss(double loss) { return std::isnan(loss) ? "nan" : say(loss); }

}  // namespace penstock
