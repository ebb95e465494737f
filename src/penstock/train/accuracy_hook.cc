#include "penstock/base/error.h"
#include "penstock/train/hooks.h"
#include "penstock/train/trainer.h"

namespace penstock {

void AccuracyHook::attached(Trainer& trainer) { trainer.track_accuracy(); }

void AccuracyHook::after_test(const EvaluationReport& report) {
  require<ConfigError>(report.accuracy.has_value(), "accuracy compares outputs with targets, but the test's batches ",
                       "have no targets: leave the AccuracyHook out");
  test_.push_back(*report.accuracy);
}

StateValues AccuracyHook::save() const {
  StateValues state;
  add_numbers(state, "test", test_);
  return state;
}

void AccuracyHook::load(const StateValues& state) { test_ = numbers_in(state, "test"); }

}  // namespace penstock
