#include "penstock/train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "penstock/base/error.h"

namespace penstock {
namespace {

/// The rate after the warm-up as a fraction of the peak, a function of the progress in [0, 1].
using Descent = double (*)(double);

Descent descent_called(std::string_view name) {
  if (name == "constant") return [](double) { return 1.0; };
  if (name == "linear") return [](double done) { return 1 - done; };
  if (name == "cosine") return [](double done) { return (1 + std::cos(std::numbers::pi * done)) / 2; };
  throw ConfigError(say("no learning-rate schedule is called '", name, "': there are constant, linear and cosine"));
}

}  // namespace

LearningRateSchedule learning_rate_schedule(const LearningRatePlan& plan, std::int64_t total) {
  const Descent descent = descent_called(plan.schedule);
  const char* unit = plan.by_epoch ? " epochs" : " steps";
  require<ConfigError>(std::isfinite(plan.rate) && plan.rate >= 0, "learning rate ", plan.rate,
                       ": pass a finite number, 0 or more");
  require<ConfigError>(total >= 1, "a learning rate over ", total, unit, ": at least 1 is needed");
  require<ConfigError>(plan.warmup >= 0 && plan.warmup <= total, "a warm-up of ", plan.warmup, unit,
                       " in a training of ", total, unit, ": pass 0 to ", total);
  return [descent, rate = plan.rate, warmup = static_cast<double>(plan.warmup),
          total = static_cast<double>(total)](std::int64_t completed) {
    const auto done = static_cast<double>(completed);
    if (done < warmup) return rate * (done + 1) / (warmup + 1);
    const double way = total - warmup;
    return rate * (way > 0 ? descent(std::min(1.0, (done - warmup) / way)) : 1);
  };
}

}  // namespace penstock
