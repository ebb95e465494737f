// The scale of the loss in fp16 training. It is the same on every rank, because all ranks use the same gradient norm.
#pragma once

#include "penstock/rank/options.h"

namespace penstock {

/// A plain value. Without fp16 the scale is always 1.
class LossScaler {
 public:
  LossScaler(Precision precision, const LossScaling& scaling);

  /// The factor of this step's loss.
  double scale() const { return scale_; }
  /// Whether updates are skipped where gradients are not finite: under fp16.
  bool is_dynamic() const { return is_dynamic_; }
  /// What decides about later scales: for checkpoints.
  struct State {
    double scale = 1;
    int good_steps = 0;
  };
  State state() const { return {scale_, good_steps_}; }
  /// Does nothing without fp16.
  void load(const State& state);
  /// Ends a step, and sets the scale of the next one by whether this step's gradients were finite.
  void end_step(bool is_finite);

 private:
  LossScaling scaling_;
  bool is_dynamic_;
  double scale_ = 1;
  int good_steps_ = 0;  // since the scale changed
};

/// Throws ConfigError for an initial scale that is not a power of two from 2^-24 to 2^24, and for growth_steps below 1.
void require_loss_scaling(const LossScaling& scaling);

}  // namespace penstock
