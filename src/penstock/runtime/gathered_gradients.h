// Gradient accumulation over several calls of forward_backward for one update.
#pragma once

#include "penstock/base/error.h"
#include "penstock/runtime/step_job.h"

namespace penstock {

/// Counts calls and computes the factors.
class GatheredGradients {
 public:
  /// Adds a call whose samples have the total weight `weight` in a mean over all calls; 0 for a sum.
  GradientShares add(double weight) {
    const double before = weight_;
    weight_ += weight;
    if (calls_++ == 0) return {};
    return weight_ > 0 ? GradientShares{true, before / weight_, weight / weight_} : GradientShares{true};
  }
  void clear() {
    calls_ = 0;
    weight_ = 0;
  }

  void update_every(int calls) {
    require<ConfigError>(calls >= 1, "an update every ", calls, " calls: give at least 1");
    calls_per_update_ = calls;
  }
  bool gathers() const { return calls_per_update_ > 1; }
  bool is_whole() const { return calls_ >= calls_per_update_; }

 private:
  int calls_per_update_ = 1;
  int calls_ = 0;      // since the last update
  double weight_ = 0;  // total weight of their samples
};

}  // namespace penstock
