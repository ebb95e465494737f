// Learning-rate schedules with warm-up.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace penstock {

/// Returns the learning rate of the step (or epoch) with `completed` steps (or epochs) before it. A pure function.
using LearningRateSchedule = std::function<double(std::int64_t completed)>;

/// The learning rate over a whole training.
struct LearningRatePlan {
  std::string schedule = "constant";
  double rate = 0.01;       // the peak
  std::int64_t warmup = 0;  // of the linear warm-up: epochs if by_epoch, else steps
  bool by_epoch = true;     // true: the rate changes once per epoch; false: at every step
};

/// Makes the schedule of a training of `total` steps (or epochs). With c completed steps (or epochs), the rate during
/// the warm-up (c < warmup) is (c + 1) / (warmup + 1) of the peak; afterwards:
///   constant  the peak
///   linear    (total - c) / (total - warmup) of the peak, falling to 0 at the end
///   cosine    half a cosine from the peak to 0
/// Throws ConfigError for any other name, total < 1, a warm-up that is negative or longer than the training, and a rate
/// that is negative or not finite.
LearningRateSchedule learning_rate_schedule(const LearningRatePlan& plan, std::int64_t total);

}  // namespace penstock
