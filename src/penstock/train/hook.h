// Callbacks of a Trainer: derive from Hook. train/hooks.h contains ready-made hooks; a HookList calls them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "penstock/checkpoint/manifest.h"
#include "penstock/rank/result.h"

namespace penstock {

class Trainer;
struct BatchOutputs;

/// The batches whose outputs a hook receives. Outputs are stored and copied only for hooks that want them.
enum class WantsOutputs {
  no,
  of_tests,
  of_all  // tests and training steps
};

/// The position in a training or a test, before the step.
struct TrainingPosition {
  std::int64_t epoch = 0;           // 0-based
  std::int64_t step = 0;            // within the epoch (or the test), 0-based
  std::int64_t steps_in_epoch = 0;  // of this epoch (or test)
  std::int64_t completed = 0;       // training steps submitted before this one, over all epochs
};

/// A completed training step.
struct StepReport {
  std::int64_t epoch = 0;  // 0-based
  std::int64_t step = 0;   // within the epoch, 0-based
  std::int64_t steps_in_epoch = 0;
  std::int64_t samples = 0;  // of this batch, over all replicas
  std::int64_t targets = 0;  // elements of the first target (tokens, for a language model); samples if there is none
  double loss = 0;
  double weight = 0;                         // divisor of the mean loss (Loss::weight), over all replicas
  double seconds = 0;                        // since the report of the previous step (or the start of the epoch)
  std::optional<double> learning_rate = {};  // unset if the Trainer does not set it
  std::optional<double> gradient_norm = {};  // before clipping; unset if the pipeline does not clip
  std::optional<bool> update_skipped = {};   // whether a gradient was not finite; unset unless precision is fp16
  // Set with TrainerOptions::measure; they cover the ranks of this process only (all ranks, if ranks are threads).
  /// Idle fraction of the ranks' time from the start of the first instruction to the end of the last.
  std::optional<double> bubble = {};
  std::optional<int> peak_activations = {};              // largest number of live micro-batches of a rank so far
  std::optional<std::int64_t> peak_resident_bytes = {};  // of this process so far
};

/// A training step that was left out because its loss is infinite or not a number (TrainerOptions::on_nan).
struct SkippedStep {
  std::int64_t epoch = 0;  // 0-based
  std::int64_t step = 0;   // within the epoch, 0-based
  std::int64_t steps_in_epoch = 0;
  std::int64_t samples = 0;   // of its batch, over all replicas
  std::int64_t in_a_row = 0;  // it and the left-out steps directly before it
  std::int64_t count = 0;     // left-out steps of this training so far, this one included
  std::string reason;         // the message of InvalidLoss
};

/// A completed pass over the training set.
struct EpochReport {
  std::int64_t epoch = 0;
  std::int64_t steps = 0;  // without those that were left out
  std::int64_t samples = 0;
  std::int64_t targets = 0;
  double loss = 0;                                // weighted mean over its samples, whatever the pipeline's reduction
  double seconds = 0;                             // without tests
  std::optional<double> next_learning_rate = {};  // of the following epoch; unset if the Trainer does not set it
  std::int64_t skipped = 0;                       // steps whose loss was infinite or not a number
};

/// A completed batch of a test.
struct TestStepReport {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  std::int64_t steps = 0;  // in this test
  std::int64_t samples = 0;
  double seconds = 0;
};

/// The value of a Metric over a test set.
struct Counted {
  std::string name;
  double sum = 0;
  double mean = 0;  // per sample
};

/// A completed pass over a test set.
struct EvaluationReport {
  std::int64_t epoch = 0;  // the training epoch before the test; 0 for Trainer::evaluate
  std::int64_t samples = 0;
  double loss = 0;                      // weighted mean over the samples, whatever the pipeline's reduction
  std::optional<double> accuracy = {};  // the mean of the metric `correct`, if it was counted
  std::vector<Counted> metrics = {};    // in the order of TrainerOptions::metrics
  double seconds = 0;
};

/// Base class of hooks: override the callbacks that you need. The Trainer calls them on its own thread, on every
/// process, in ascending order of priority and, within one priority, in the order in which the hooks were added. An
/// exception of a hook ends the training. The library itself prints nothing.
///
/// All processes receive the same reports except for times and memory. A hook that changes the training (stops it, sets
/// learning rates) must be added on every process and must decide by values that are equal everywhere, such as the
/// loss, not by times.
///
/// The loss of a step is read after the next step was submitted: after_step of step k runs after before_step of step
/// k + 1, except at the end of an epoch (see TrainerOptions::look_ahead).
class Hook {
 public:
  explicit Hook(int priority = 10) : priority_(priority) {}
  virtual ~Hook() = default;
  Hook(const Hook&) = delete;
  Hook& operator=(const Hook&) = delete;

  int priority() const { return priority_; }  // hooks of lower priority run first

  /// Checkpoints contain the states of all hooks. A hook whose callbacks depend on earlier ones overrides both: save()
  /// returns what load() needs, in a later run of the program, to continue as if the training had not been interrupted.
  /// load() is called after before_train(). If the states of a hook differ between processes, the main process's state
  /// is stored, and all processes load it. Text in a state is UTF-8.
  virtual StateValues save() const { return {}; }
  virtual void load(const StateValues&) {}
  /// Finds the state of a hook in a checkpoint; hooks of one name are numbered in their order. Default: the class's.
  virtual std::string name() const;

  /// Called once, by Trainer::add_hook. The Trainer owns the hook and outlives it.
  virtual void attached(Trainer&) {}
  virtual void before_train() {}
  /// Called at the end of Trainer::fit, unless it fails.
  virtual void after_train() {}
  /// Called last, whether Trainer::fit succeeds or fails.
  virtual void on_end() {}

  virtual void before_epoch(const TrainingPosition&) {}
  virtual void after_epoch(const EpochReport&) {}
  virtual void before_step(const TrainingPosition&) {}
  virtual void after_step(const StepReport&) {}
  /// Instead of after_step, for a step that was left out.
  virtual void after_skipped_step(const SkippedStep&) {}

  /// A test is one pass over the test set: after epochs (TrainerOptions::evaluate_every) and in Trainer::evaluate.
  /// No after_test follows if the training ends in the middle of a test (TrainerOptions::stop_when).
  virtual void before_test(const TrainingPosition&) {}
  virtual void after_test(const EvaluationReport&) {}
  virtual void before_test_step(const TrainingPosition&) {}
  virtual void after_test_step(const TestStepReport&) {}

  /// The answer must not change during an epoch or a test.
  virtual WantsOutputs wants_outputs() const { return WantsOutputs::no; }
  /// The outputs of the network for a batch, with its targets (rank/result.h). Called directly before after_step and
  /// after_test_step if wants_outputs() asks for it, and only on processes that hold the last stage: under threads the
  /// only process, with all rows; under MPI the last rank of each replica, with the rows of its share.
  virtual void after_batch(const StepReport&, const BatchOutputs&) {}
  virtual void after_test_batch(const TestStepReport&, const BatchOutputs&) {}

 private:
  int priority_;
};

/// Owns the hooks. Used by the Trainer's thread.
class HookList {
 public:
  /// Sorts `hook` after the hooks of equal priority.
  void add(std::unique_ptr<Hook> hook);

  /// Calls the function of every hook, as in call(&Hook::after_epoch, report).
  template <class... Parameters>
  void call(void (Hook::*function)(Parameters...), const std::type_identity_t<Parameters>&... arguments) const {
    for (const auto& hook : hooks_) ((*hook).*function)(arguments...);
  }

  /// Whether a hook wants the outputs of tests (`least` = of_tests), or of training steps too (of_all).
  bool want_outputs(WantsOutputs least) const;
  /// Passes the outputs of a training step, or of a step of a test, to the hooks that want them, if this process has
  /// the outputs.
  void report_outputs(const StepResult& result, const StepReport& report) const;
  void report_outputs(const StepResult& result, const TestStepReport& report) const;

  /// The states of all hooks that have one, by "hook.MyHook", or "hook.MyHook-2" for the second hook of this name.
  std::map<std::string, StateValues> states() const;
  /// Restores the state of each hook that has one in `states`.
  void load(const std::map<std::string, StateValues>& states) const;

 private:
  std::vector<std::unique_ptr<Hook>> hooks_;
};

}  // namespace penstock
