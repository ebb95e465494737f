// The scale of the loss in fp16 training: the same on every rank, for all ranks see the same gradients' norm.
#pragma once

#include "penstock/runtime/options.h"

namespace penstock {

/// A plain value. Without fp16 the scale is 1 for ever.
class LossScaler {
 public:
  LossScaler(Precision precision, const LossScaling& scaling);

  /// What this step's loss is multiplied with.
  double scale() const { return scale_; }
  /// Whether updates are left out where gradients are not finite.
  bool is_dynamic() const { return is_dynamic_; }
  /// Ends a step: the scale of the next one follows from whether this one's gradients were finite.
  void end_step(bool is_finite);

 private:
  LossScaling scaling_;
  bool is_dynamic_;
  double scale_ = 1;
  int good_steps_ = 0;  // since the scale changed
};

/// Throws ConfigError for an initial scale that is no power of two, or growth steps below 1.
void require_loss_scaling(const LossScaling& scaling);

}  // namespace penstock
