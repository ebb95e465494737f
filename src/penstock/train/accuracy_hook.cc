#include <algorithm>

#include "penstock/base/error.h"
#include "penstock/train/hooks.h"
#include "penstock/train/trainer.h"

namespace penstock {

void AccuracyHook::attached(Trainer& trainer) { trainer.count(metric_); }

void AccuracyHook::after_test(const EvaluationReport& report) {
  const auto counted = std::find_if(report.metrics.begin(), report.metrics.end(),
                                    [&](const Counted& c) { return c.name == metric_.name; });
  require<InternalError>(counted != report.metrics.end(), "the test did not count '", metric_.name, "'");
  test_.push_back(counted->mean);
}

}  // namespace penstock
