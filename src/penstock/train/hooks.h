// Ready-made hooks. Hooks that write should be added on one process only, usually the main one. log_hooks.cc defines
// hooks that write lines for people, record_hooks.cc hooks that write numbers for programs, hooks.cc the others.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "penstock/rank/result.h"
#include "penstock/train/hook.h"

namespace penstock {

struct ConsoleOptions {
  std::int64_t log_every = 10;  // write the loss of step 0 of each epoch and of every `log_every`-th after it; 0: never
  bool is_terminal = false;     // true: a progress bar below the lines; false: no carriage returns or escape sequences
  bool with_times = false;      // seconds per step in the loss lines, and a line with the throughput after each epoch
  bool tests = true;            // a line for each evaluation
  std::int64_t first_epoch = 0;  // the number of the first epoch in all lines; 1 beside loss_monitor_hook
};

/// Writes `epoch: 0 step: 10, loss is 2.27094173` and, after an evaluation, `epoch: 0 test: loss 0.29, accuracy
/// 0.9183`. With times: `epoch: 0 step: 10, loss is 2.27094173, 0.0123 s per step` (the mean since the previous line)
/// and `epoch: 0 train: loss 0.51, 8000 samples in 3.2 s, 2500 samples/s`, followed by tokens/s if targets have more
/// elements than samples. On a terminal, also a progress bar with the throughput and the remaining time. `out` must
/// outlive the hook.
std::unique_ptr<Hook> console_hook(std::ostream& out, const ConsoleOptions& options);

/// Writes one JSON object per line, as docs/json_lines.md describes. `out` must outlive the hook.
std::unique_ptr<Hook> json_hook(std::ostream& out);

struct ContinuedJson {
  std::string path;
  /// Whether what the training writes again is removed from the end of the file: its lines from the first step or
  /// test on that is repeated, and a last line that breaks off because the run was killed. False if the checkpoints of
  /// the former training stay as they are, so that its lines must, too.
  bool replaces = false;
};

/// For a training that is resumed (docs/json_lines.md): a hook that opens `out`, at the end of the file, when the
/// training begins; until then it may be refused, and the file stays as it is. To be added before json_hook(out); `out`
/// must outlive both. Throws Failure if the file cannot be read, shortened or opened.
std::unique_ptr<Hook> continue_json(std::ofstream& out, const ContinuedJson& file);

/// Whether this process writes to a terminal, for ConsoleOptions::is_terminal. False if the job has several processes:
/// mpirun starts its processes with pseudo-terminals even when its own output goes to a file.
bool stdout_is_terminal();

/// Writes an event file for TensorBoard into `directory`, which is created if it is missing; use one directory per run.
/// Every step, counted from 1 over all epochs, writes train/loss, train/learning_rate, train/gradient_norm,
/// throughput/samples_per_second (and tokens_per_second, bubble) and memory/..., as far as StepReport has them; every
/// test writes test/loss, test/accuracy and test/NAME for other metrics, at the preceding step. The numbers are those
/// of json_hook, as fp32. Throws ConfigError if the file cannot be created; the training throws Failure if it cannot be
/// written.
std::unique_ptr<Hook> tensorboard_hook(const std::string& directory);

/// Writes two lines per epoch, numbers with five digits:
///   [Epoch 0 / Train]: Loss = 6.1 | LR = 0.001
///   [Epoch 0 / Test]: Loss = 5.9 | Accuracy = 0.12
/// LR is the learning rate of the next epoch, and is written only if the Trainer sets it. Other metrics follow with
/// their names, as means per sample. `out` must outlive the hook.
std::unique_ptr<Hook> epoch_log_hook(std::ostream& out);

/// Writes `epoch: 1 step: 1, loss is 4.61`, both counted from 1, every `every` steps of an epoch. Throws Failure if a
/// reported loss is infinite or not a number, which happens only with OnNan::go_on. `out` must outlive the hook.
std::unique_ptr<Hook> loss_monitor_hook(std::ostream& out, std::int64_t every = 1);

/// Writes `epoch: 0, 8000 samples in 3.2 s: 2500 samples/s` after each epoch, followed by tokens/s if targets have more
/// elements than samples. The first step of the training is not counted, because it includes setup. `out` must outlive
/// the hook.
std::unique_ptr<Hook> throughput_hook(std::ostream& out);

/// Stores the losses of all epochs and tests.
class LossHook : public Hook {
 public:
  LossHook() : Hook(0) {}
  void after_epoch(const EpochReport& report) override { train_.push_back(report.loss); }
  void after_test(const EvaluationReport& report) override { test_.push_back(report.loss); }

  StateValues save() const override;
  void load(const StateValues& state) override;

  const std::vector<double>& train() const { return train_; }  // by epoch
  const std::vector<double>& test() const { return test_; }    // by test

 private:
  std::vector<double> train_, test_;
};

/// Counts the right answers in tests and stores the accuracy of each test: the fraction over the whole test set.
class AccuracyHook : public Hook {
 public:
  AccuracyHook() : Hook(0) {}
  void attached(Trainer& trainer) override;
  void after_test(const EvaluationReport& report) override;
  StateValues save() const override;
  void load(const StateValues& state) override;

  const std::vector<double>& test() const { return test_; }  // by test

 private:
  std::vector<double> test_;
};

/// Durations of one kind of event, in seconds.
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
  /// One line for each of the four kinds that occurred: `Train-step: last 0.01 s, mean 0.012 s, 250 times`.
  std::string table() const;

 private:
  Timing train_step_, train_epoch_, test_step_, test_epoch_;
};

/// The memory of this process, at the end of an epoch.
struct MemoryUse {
  std::int64_t epoch = 0;
  std::int64_t resident_bytes = 0;         // physical memory at this time
  std::int64_t peak_resident_bytes = 0;    // largest value so far
  int peak_activations = 0;                // largest number of live micro-batches of one of its ranks so far
  std::int64_t peak_activation_bytes = 0;  // largest size of their activations; 0 without PipelineOptions::count_bytes
};

/// Stores the memory use of this process after each epoch and, if `out` is not null, writes
/// `epoch: 0, memory 412.0 MiB, at most 431.5 MiB, live micro-batches at most 2`. `out` must outlive the hook.
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
  std::int64_t patience = 3;  // stop after so many consecutive tests without progress
  double least_progress = 0;  // a value must be better than the best so far by more than this
  bool by_accuracy = false;   // false: lower test loss is better; true: higher accuracy is better
};

/// Stops the training when test results stop improving. Add it on every process. It does not restore the weights of the
/// best test: the last step's remain.
class EarlyStopHook : public Hook {
 public:
  /// Throws ConfigError if patience is below 1 or least_progress is negative or not a number.
  explicit EarlyStopHook(const EarlyStop& options);
  void attached(Trainer& trainer) override;
  void after_test(const EvaluationReport& report) override;
  StateValues save() const override;
  void load(const StateValues& state) override;

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
