#include "penstock/model/dropout.h"

#include <torch/nn/functional/dropout.h>

#include "penstock/base/error.h"
#include "penstock/model/random_rows.h"

namespace penstock {

DropoutImpl::DropoutImpl(double p) : DropoutImpl(DropoutOptions{p, 0, false}) {}

DropoutImpl::DropoutImpl(const DropoutOptions& options) : options_(options) {
  require<ConfigError>(options.p >= 0 && options.p < 1, "dropout with probability ", options.p,
                       ": pass one from 0 to below 1");
}

torch::Tensor DropoutImpl::forward(const torch::Tensor& input) {
  const RandomPlace* place = RandomPlace::current();
  const double p = options_.p;
  if (!is_training() || p == 0) return input;
  if (!place) return torch::nn::functional::dropout(input, torch::nn::functional::DropoutFuncOptions().p(p));
  const Threshold threshold{.below = static_cast<std::uint64_t>(p * 4294967296.0),
                            .value = static_cast<float>(1 / (1 - p))};
  return input * draw_by_sample(input, {options_.sample_dimension, options_.flattened}, *place, threshold, "dropout");
}

}  // namespace penstock
