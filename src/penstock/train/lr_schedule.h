// Learning-rate schedules with warm-up.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace penstock {

/// Returns the learning rate of the step (or epoch) with `completed` steps (or epochs) before it. A pure function.
using LearningRateSchedule = std::function<double(std::int64_t completed)>;

struct LearningRateOptions {
  double rate = 0.01;               // the peak rate
  std::int64_t total = 1;           // steps (or epochs) of the training
  std::string_view unit = "steps";  // "steps" or "epochs", for messages
  std::int64_t warmup = 0;          // number of steps (or epochs) of the linear warm-up
};

/// Makes the schedule `name`. With c completed steps (or epochs), the rate during the warm-up (c < warmup) is
/// (c + 1) / (warmup + 1) of the peak; afterwards:
///   constant  the peak
///   linear    (total - c) / (total - warmup) of the peak, falling to 0 at the end
///   cosine    half a cosine from the peak to 0
/// Throws ConfigError for any other name, total < 1, a warm-up that is negative or longer than the training, and a rate
/// that is negative or not finite.
LearningRateSchedule learning_rate_schedule(std::string_view name, const LearningRateOptions& options);

}  // namespace penstock
