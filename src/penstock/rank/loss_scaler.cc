#include "penstock/rank/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "penstock/base/error.h"

namespace penstock {
namespace {

/// Below the largest scale, scaled losses and gradients stay finite in fp32; a scale below the smallest is useless.
constexpr double largest_scale = 16777216, smallest_scale = 1 / largest_scale;

}  // namespace

LossScaler::LossScaler(Precision precision, const LossScaling& scaling)
    : scaling_(scaling), is_dynamic_(precision == Precision::fp16) {
  if (is_dynamic_) scale_ = scaling.initial;
}

void LossScaler::load(const State& state) {
  if (!is_dynamic_) return;
  scale_ = state.scale;
  good_steps_ = state.good_steps;
}

void LossScaler::end_step(bool is_finite) {
  if (!is_dynamic_) return;
  if (!is_finite) {
    scale_ = std::max(scale_ / 2, smallest_scale);
    good_steps_ = 0;
  } else if (++good_steps_ >= scaling_.growth_steps) {
    scale_ = std::min(scale_ * 2, largest_scale);
    good_steps_ = 0;
  }
}

void require_loss_scaling(const LossScaling& scaling) {
  int exponent = 0;
  const bool is_power =
      scaling.initial > 0 && std::isfinite(scaling.initial) && std::frexp(scaling.initial, &exponent) == 0.5;
  require<ConfigError>(is_power && scaling.initial >= smallest_scale && scaling.initial <= largest_scale,
                       "the loss scale begins at ", scaling.initial, ": give a power of two from 2^-24 to 2^24");
  require<ConfigError>(scaling.growth_steps >= 1, "the loss scale grows after ", scaling.growth_steps,
                       " steps: give at least 1");
}

}  // namespace penstock
