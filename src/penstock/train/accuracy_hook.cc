#include "penstock/base/error.h"
#include "penstock/train/hooks.h"
#include "penstock/train/trainer.h"

namespace penstock {

void AccuracyHook::attached(Trainer& trainer) { trainer.count_right_answers(); }

void AccuracyHook::after_test(const EvaluationReport& report) {
  require<InternalError>(report.accuracy.has_value(), "the test did not count right answers");
  test_.push_back(*report.accuracy);
}

}  // namespace penstock
