// The hooks that store results of epochs and tests, and act on them.
#include "penstock/train/hooks.h"

#include <cmath>
#include <limits>

#include "penstock/base/error.h"
#include "penstock/checkpoint/manifest.h"
#include "penstock/train/trainer.h"

namespace penstock {

StateValues LossHook::save() const {
  StateValues state;
  add_numbers(state, "train", train_);
  add_numbers(state, "test", test_);
  return state;
}

void LossHook::load(const StateValues& state) {
  train_ = numbers_in(state, "train");
  test_ = numbers_in(state, "test");
}

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

EarlyStopHook::EarlyStopHook(const EarlyStop& options)
    : options_(options),
      best_(options.by_accuracy ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity()) {
  require<ConfigError>(options.patience >= 1, "early stop after ", options.patience,
                       " tests without progress: pass 1 or more");
  require<ConfigError>(options.least_progress >= 0 && std::isfinite(options.least_progress), "a least progress of ",
                       options.least_progress, ": pass 0 or more");
}

void EarlyStopHook::attached(Trainer& trainer) {
  trainer_ = &trainer;
  if (options_.by_accuracy) trainer.track_accuracy();
}

StateValues EarlyStopHook::save() const {
  return {{"best", best_}, {"best_epoch", best_epoch_}, {"without_progress", without_progress_}};
}

void EarlyStopHook::load(const StateValues& state) {
  best_ = number_in(state, "best");
  best_epoch_ = whole_in(state, "best_epoch");
  without_progress_ = whole_in(state, "without_progress");
}

void EarlyStopHook::after_test(const EvaluationReport& report) {
  const double value = options_.by_accuracy ? report.accuracy.value_or(0) : report.loss;
  const double gain = options_.by_accuracy ? value - best_ : best_ - value;
  if (gain > options_.least_progress) {
    best_ = value;
    best_epoch_ = report.epoch;
    without_progress_ = 0;
    return;
  }
  if (++without_progress_ < options_.patience) return;
  trainer_->stop(say("the test ", options_.by_accuracy ? "accuracy" : "loss", " has been no better than ", best_,
                     " of epoch ", best_epoch_, " for ", without_progress_, " tests"));
}

}  // namespace penstock
