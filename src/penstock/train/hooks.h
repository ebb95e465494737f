// Ready hooks. Those that write do so only in the process in which they are added: the main one, as a rule.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "penstock/runtime/result.h"
#include "penstock/train/hook.h"

namespace penstock {

struct ConsoleOptions {
  std::int64_t log_every = 10;  // steps between two loss lines, counted within the epoch from 0; 0: none
  bool is_terminal = false;     // true: a progress bar below the lines; false: no carriage return, no escape
  bool with_times = false;      // seconds per step in the loss lines, and a line with the rate after each epoch
  bool tests = true;            // a line for each evaluation
};

/// `epoch: 0 step: 10, loss is 2.27094173` and, after an evaluation, `epoch: 0 test: loss 0.29, accuracy 0.9183`.
/// With times: `epoch: 0 step: 10, loss is 2.27094173, 0.0123 s per step` (the mean since the line before) and
/// `epoch: 0 train: loss 0.51, 8000 samples in 3.2 s, 2500 samples/s`. Where targets hold more numbers than samples,
/// their rate stands there too, as tokens/s. On a terminal, a bar with the rate and the time left. `out` must outlive
/// the hook.
std::unique_ptr<Hook> console_hook(std::ostream& out, const ConsoleOptions& options);

/// One JSON object a line: docs/json_lines.md tells which. `out` must outlive the hook.
std::unique_ptr<Hook> json_hook(std::ostream& out);

/// Whether this process writes to a terminal: what ConsoleOptions::is_terminal asks for. mpirun gives its processes
/// terminals of their own even where its output goes to a file, so no process of several is.
bool stdout_is_terminal();

/// Writes an event file for TensorBoard into `directory`, which is made where it is missing: one run each. At every
/// step, counted from 1 over all epochs: train/loss, train/learning_rate, train/gradient_norm,
/// throughput/samples_per_second (and tokens_per_second, bubble), memory/..., as far as they are known (StepReport);
/// after every test: test/loss, test/accuracy and test/NAME of further metrics, at the step before it. The numbers are
/// those of json_hook, as fp32. Throws ConfigError where the file cannot be made, and Failure, from the training, where
/// it cannot be written.
std::unique_ptr<Hook> tensorboard_hook(const std::string& directory);

/// Two lines for each epoch, numbers with five digits:
///   [Epoch 0 / Train]: Loss = 6.1 | LR = 0.001
///   [Epoch 0 / Test]: Loss = 5.9 | Accuracy = 0.12
/// LR is the rate that the next epoch has, and stands there where the Trainer sets it. Further metrics follow with
/// their names, per sample. `out` must outlive the hook.
std::unique_ptr<Hook> epoch_log_hook(std::ostream& out);

/// `epoch: 1 step: 1, loss is 4.61`, both counted from 1, every `every` steps of an epoch. Throws Failure at a loss
/// that is not a number or infinite. `out` must outlive the hook.
std::unique_ptr<Hook> loss_monitor_hook(std::ostream& out, std::int64_t every = 1);

/// After each epoch, `epoch: 0, 8000 samples in 3.2 s: 2500 samples/s`, and tokens/s where targets hold more numbers
/// than samples. The first step of the training, which sets things up, does not count. `out` must outlive the hook.
std::unique_ptr<Hook> throughput_hook(std::ostream& out);

/// Remembers the losses, for looking at them afterwards.
class LossHook : public Hook {
 public:
  LossHook() : Hook(0) {}
  void after_epoch(const EpochReport& report) override { train_.push_back(report.loss); }
  void after_test(const EvaluationReport& report) override { test_.push_back(report.loss); }

  const std::vector<double>& train() const { return train_; }  // by epoch
  const std::vector<double>& test() const { return test_; }    // by test

 private:
  std::vector<double> train_, test_;
};

/// Counts the right answers in tests, and remembers their share: of the whole test set, whatever its batches.
class AccuracyHook : public Hook {
 public:
  AccuracyHook() : Hook(0) {}
  void attached(Trainer& trainer) override;
  void after_test(const EvaluationReport& report) override;

  const std::vector<double>& test() const { return test_; }  // by test

 private:
  std::vector<double> test_;
};

/// How long things took, in seconds.
struct Timing {
  std::int64_t count = 0;
  double last = 0;
  double sum = 0;

  double mean() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
  void add(double seconds);
};

/// Times steps and epochs of training and tests. A training step lasts from the report of one loss to the next.
class TimerHook : public Hook {
 public:
  TimerHook() : Hook(0) {}
  void after_step(const StepReport& report) override { train_step_.add(report.seconds); }
  void after_epoch(const EpochReport& report) override { train_epoch_.add(report.seconds); }
  void after_test_step(const TestStepReport& report) override { test_step_.add(report.seconds); }
  void after_test(const EvaluationReport& report) override { test_epoch_.add(report.seconds); }

  const Timing& train_step() const { return train_step_; }
  const Timing& train_epoch() const { return train_epoch_; }
  const Timing& test_step() const { return test_step_; }
  const Timing& test_epoch() const { return test_epoch_; }
  /// `Train-step: last 0.01 s, mean 0.012 s, 250 times` and so on: a line for each of the four that has happened.
  std::string table() const;

 private:
  Timing train_step_, train_epoch_, test_step_, test_epoch_;
};

/// The memory of this process, at the end of an epoch.
struct MemoryUse {
  std::int64_t epoch = 0;
  std::int64_t resident_bytes = 0;         // physical memory then
  std::int64_t peak_resident_bytes = 0;    // and at most so far
  int peak_activations = 0;                // most live micro-batches of one of its ranks so far
  std::int64_t peak_activation_bytes = 0;  // and what they held at most; 0 without PipelineOptions::count_bytes
};

/// Remembers the memory of this process after each epoch and, given a stream, writes
/// `epoch: 0, memory 412.0 MiB, at most 431.5 MiB, live micro-batches at most 2`. The stream must outlive the hook.
class MemoryHook : public Hook {
 public:
  explicit MemoryHook(std::ostream* out = nullptr) : Hook(0), out_(out) {}
  void attached(Trainer& trainer) override;
  void after_epoch(const EpochReport& report) override;

  const std::vector<MemoryUse>& epochs() const { return epochs_; }

 private:
  std::ostream* out_;
  Trainer* trainer_ = nullptr;
  std::vector<MemoryUse> epochs_;
};

struct EarlyStop {
  std::int64_t patience = 3;  // tests in a row without progress
  double least_progress = 0;  // a value must be better than the best by more than this
  bool by_accuracy = false;   // false: the test loss shall fall; true: the accuracy shall rise
};

/// Stops the training when tests get no better. To be added on every process. It keeps no weights: what remains are
/// those of the last step.
class EarlyStopHook : public Hook {
 public:
  /// Throws ConfigError for a patience below 1 and a progress that is negative or no number.
  explicit EarlyStopHook(const EarlyStop& options);
  void attached(Trainer& trainer) override;
  void after_test(const EvaluationReport& report) override;

  double best() const { return best_; }
  std::int64_t best_epoch() const { return best_epoch_; }

 private:
  EarlyStop options_;
  Trainer* trainer_ = nullptr;
  double best_;
  std::int64_t best_epoch_ = -1;
  std::int64_t without_progress_ = 0;
};

}  // namespace penstock
