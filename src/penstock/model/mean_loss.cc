#include "penstock/model/mean_loss.h"

#include <utility>

#include "penstock/base/error.h"
#include "penstock/model/loss_checks.h"
#include "penstock/model/value.h"

namespace penstock {

Loss mean_loss(const std::string& name, BatchFunction<torch::Tensor> mean, TargetFunction weight) {
  require<ConfigError>(static_cast<bool>(mean), "mean_loss '", name, "' has no function: give one that ",
                       "returns the mean");
  const bool needs_target = mean.targets() == TargetUse::first || weight.targets() == TargetUse::first;
  Loss loss;
  loss.name = name;
  loss.sum = [name, needs_target, mean = std::move(mean), weight](const Tensors& outputs, const Tensors& targets) {
    require<ConfigError>(!needs_target || !targets.empty(), "the loss '", name, "' takes a target, but the batch ",
                         "has none: pass targets");
    const double count = weight ? weight(targets) : static_cast<double>(outputs.front().size(0));
    if (count == 0) return (outputs.front() * 0).sum();  // the mean of no elements is NaN
    return require_scalar(name, mean(outputs, targets)) * count;
  };
  loss.weight = std::move(weight);
  return loss;
}

}  // namespace penstock
