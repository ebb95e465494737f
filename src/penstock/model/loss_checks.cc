#include "penstock/model/loss_checks.h"

#include "penstock/base/error.h"

namespace penstock {

Loss complete(Loss loss) {
  require<ConfigError>(loss.sum || loss.sum_of_all, "the loss '", loss.name,
                       "' has no function: give Loss::sum, the sum of the samples' losses, or make the loss with "
                       "mean_loss(name, function)");
  return loss;
}

torch::Tensor require_scalar(const std::string& name, torch::Tensor value) {
  require<ConfigError>(value.defined(), "the loss '", name, "' returned an undefined tensor: return a scalar");
  require<ConfigError>(value.dim() == 0, "the loss '", name, "' returned a tensor of shape ", value.sizes(),
                       ", but a scalar is expected: return the sum of the samples' losses, loss.sum()");
  return value;
}

}  // namespace penstock
