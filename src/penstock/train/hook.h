// What one is told while a Trainer runs. Derive from Hook; hooks.h has ready ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

class Trainer;
struct BatchOutputs;

/// Of which batches a hook looks at the outputs: they are kept and copied for it.
enum class WantsOutputs {
  no,
  of_tests,
  of_all  // of training steps too
};

/// Where a training or a test is, before it does the step.
struct TrainingPosition {
  std::int64_t epoch = 0;           // 0-based
  std::int64_t step = 0;            // within the epoch (or the test), 0-based
  std::int64_t steps_in_epoch = 0;  // of this epoch (or test)
  std::int64_t completed = 0;       // training steps before it, over all epochs
};

/// One training step, when its loss is known.
struct StepReport {
  std::int64_t epoch = 0;  // 0-based
  std::int64_t step = 0;   // within the epoch, 0-based
  std::int64_t steps_in_epoch = 0;
  std::int64_t samples = 0;  // of this batch, over all replicas
  std::int64_t targets = 0;  // numbers in its first target: tokens, for a language model; without, samples
  double loss = 0;
  double weight = 0;                         // what a mean of the loss divides by
  double seconds = 0;                        // since the step before it (or the start)
  std::optional<double> learning_rate = {};  // none where the Trainer does not set it
  std::optional<double> gradient_norm = {};  // before clipping; none where the pipeline does not clip
  std::optional<bool> update_skipped = {};   // a gradient was not finite; none where precision is not fp16
  // With TrainerOptions::measure, of this process's ranks alone: under threads these are all.
  std::optional<double> bubble =
      {};  // idle share of their time, from the first instruction's begin to the last one's end
  std::optional<int> peak_activations = {};              // most live micro-batches of a rank so far
  std::optional<std::int64_t> peak_resident_bytes = {};  // of this process so far
};

/// A pass over the training set.
struct EpochReport {
  std::int64_t epoch = 0;
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  std::int64_t targets = 0;
  double loss = 0;     // mean over its samples (by their weights), whatever the pipeline's reduction
  double seconds = 0;  // without tests
  std::optional<double> next_learning_rate = {};  // that an epoch after it has; none where the Trainer does not set it
};

/// One batch of a test.
struct TestStepReport {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  std::int64_t steps = 0;  // in this test
  std::int64_t samples = 0;
  double seconds = 0;
};

/// What a test counted: a Metric's sum over its samples.
struct Counted {
  std::string name;
  double sum = 0;
  double mean = 0;  // per sample
};

/// A pass over a test set.
struct EvaluationReport {
  std::int64_t epoch = 0;  // after which it was made
  std::int64_t samples = 0;
  double loss = 0;                      // mean over the samples (by their weights), whatever the pipeline's reduction
  std::optional<double> accuracy = {};  // the mean of the metric `correct`, where it was counted
  std::vector<Counted> metrics = {};    // in the order of TrainerOptions::metrics
  double seconds = 0;
};

/// Derive from it and override what you like to hear of. Called on every process, in the order of priorities, those of
/// one priority in the order in which they were added. The library itself prints nothing.
///
/// What is told is the same on every process but for times and memory. A hook that changes the training (stops it, sets
/// learning rates) must be added on every process and decide by the loss and the like, not by times.
///
/// The loss of a step is read when the next step is submitted already: after_step of step k comes after before_step of
/// step k + 1, except at the end of an epoch (TrainerOptions::look_ahead).
class Hook {
 public:
  explicit Hook(int priority = 10) : priority_(priority) {}
  virtual ~Hook() = default;
  Hook(const Hook&) = delete;
  Hook& operator=(const Hook&) = delete;

  int priority() const { return priority_; }  // lower ones are called first

  /// Once, by Trainer::add_hook; `trainer` outlives the hook.
  virtual void attached(Trainer&) {}
  virtual void before_train() {}
  /// After the last step, unless training failed.
  virtual void after_train() {}
  /// After the last step, also of a training that ends with an error.
  virtual void on_end() {}

  virtual void before_epoch(const TrainingPosition&) {}
  virtual void after_epoch(const EpochReport&) {}
  virtual void before_step(const TrainingPosition&) {}
  virtual void after_step(const StepReport&) {}

  /// A test is one pass over the test set: after epochs that TrainerOptions tells, and in Trainer::evaluate.
  virtual void before_test(const TrainingPosition&) {}
  virtual void after_test(const EvaluationReport&) {}
  virtual void before_test_step(const TrainingPosition&) {}
  virtual void after_test_step(const TestStepReport&) {}

  /// Asked once before each training and each test.
  virtual WantsOutputs wants_outputs() const { return WantsOutputs::no; }
  /// What the network made of a batch, next to its targets (runtime/result.h). Called right before after_step and
  /// after_test_step, for hooks that want it, and only on processes that hold the last stage: under threads there is
  /// one with all rows; under MPI each replica's last rank has its own rows.
  virtual void after_batch(const StepReport&, const BatchOutputs&) {}
  virtual void after_test_batch(const TestStepReport&, const BatchOutputs&) {}

 private:
  int priority_;
};

}  // namespace penstock
