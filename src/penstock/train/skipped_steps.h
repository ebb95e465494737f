// The steps that a training leaves out because their loss is infinite or not a number.
#pragma once

#include <cstdint>
#include <set>

#include "penstock/rank/result.h"
#include "penstock/train/hook.h"

namespace penstock {

/// What a training does if the loss of a step is infinite or not a number. Except with `go_on` the pipeline refuses
/// such a step before any update (StepOptions::refuse_invalid_loss), so that the state is that before it.
enum class OnNan {
  stop,      // throws InvalidLoss; a step that was submitted after it is not run
  skip,      // leaves the step out, and goes on with the next batch
  rollback,  // returns to the last checkpoint, and leaves out the batch that caused it
  go_on      // updates with such a loss
};

/// Decides about refused steps, and counts them. A plain value.
class SkippedSteps {
 public:
  /// Without a step in between that was not refused.
  static constexpr int most_in_a_row = 10;

  explicit SkippedSteps(OnNan choice) : choice_(choice) {}

  bool refuses() const { return choice_ != OnNan::go_on; }
  /// Whether training stops or returns when the next step is refused, so that the one after it must not run.
  bool ends_at_next() const { return choice_ != OnNan::skip || in_a_row_ == most_in_a_row; }

  bool returns() const { return choice_ == OnNan::rollback; }
  /// Adds a refused step, `step`, with `completed` steps before it, and returns its report. Throws InvalidLoss if
  /// training stops: with OnNan::stop, and where most_in_a_row steps were left out before it.
  SkippedStep add(const InvalidLoss& refusal, const StepReport& step, std::int64_t completed);
  /// Counts a step that was not refused.
  void add_valid() { in_a_row_ = 0; }

  /// After a return to the checkpoint of step `checkpoint` because of `refusal`: counts it. Throws InvalidLoss after
  /// most_in_a_row returns to one checkpoint.
  void add_return(const InvalidLoss& refusal, std::int64_t checkpoint);
  /// Whether the batch of the step with `completed` steps before it is left out after a return.
  bool contains(std::int64_t completed) const { return batches_.contains(completed); }

  /// What a later run of the program needs to count on.
  struct Counts {
    std::int64_t in_a_row = 0;
    std::int64_t all = 0;
  };
  Counts counts() const { return {in_a_row_, count_}; }
  void continue_from(const Counts& counts) {
    in_a_row_ = counts.in_a_row;
    count_ = counts.all;
  }

 private:
  OnNan choice_;
  std::int64_t in_a_row_ = 0;
  std::int64_t count_ = 0;
  std::set<std::int64_t> batches_;  // by the number of steps before them
  std::int64_t returned_to_ = -1;   // the step of a checkpoint
  int returns_ = 0;                 // to it
};

/// Thrown within Trainer::fit: the training returns to its last checkpoint.
struct ReturnToCheckpoint {
  InvalidLoss refusal;
};

}  // namespace penstock
