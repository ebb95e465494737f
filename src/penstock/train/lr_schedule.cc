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

LearningRateSchedule learning_rate_schedule(std::string_view name, const LearningRateOptions& options) {
  const Descent descent = descent_called(name);
  require<ConfigError>(std::isfinite(options.rate) && options.rate >= 0, "learning rate ", options.rate,
                       ": pass a finite number, 0 or more");
  require<ConfigError>(options.total >= 1, "a learning rate over ", options.total, " ", options.unit,
                       ": at least 1 is needed");
  require<ConfigError>(options.warmup >= 0 && options.warmup <= options.total, "a warm-up of ", options.warmup, " ",
                       options.unit, " in a training of ", options.total, " ", options.unit, ": pass 0 to ",
                       options.total);
  return [descent, options](std::int64_t completed) {
    const auto done = static_cast<double>(completed);
    const auto warmup = static_cast<double>(options.warmup);
    if (completed < options.warmup) return options.rate * (done + 1) / (warmup + 1);
    const double way = static_cast<double>(options.total) - warmup;
    return options.rate * (way > 0 ? descent(std::min(1.0, (done - warmup) / way)) : 1);
  };
}

}  // namespace penstock
