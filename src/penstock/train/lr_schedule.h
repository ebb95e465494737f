// How the learning rate changes over a training.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace penstock {

/// The learning rate for the step (or epoch) before which `completed` of them were done. A pure function.
using LearningRateSchedule = std::function<double(std::int64_t completed)>;

struct LearningRateOptions {
  double rate = 0.01;               // the peak
  std::int64_t total = 1;           // steps (or epochs) of the training
  std::string_view unit = "steps";  // what is counted, for messages
  std::int64_t warmup = 0;  // of these, so many rise to the peak: (c + 1) / (warmup + 1) of it when c are completed
};

/// After the warm-up:
///   constant  the peak
///   linear    falls to 0 at the end: (total - c) / (total - warmup) of the peak
///   cosine    the same way down along half a cosine
/// Throws ConfigError for another name, total < 1, a warm-up that is negative or longer than the training, and a rate
/// that is negative or not finite.
LearningRateSchedule learning_rate_schedule(std::string_view name, const LearningRateOptions& options);

}  // namespace penstock
