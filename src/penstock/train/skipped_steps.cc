#include "penstock/train/skipped_steps.h"

#include <algorithm>
#include <utility>

#include "penstock/base/error.h"

namespace penstock {
namespace {

/// The batch that spoiled a step with `completed` steps before it: that of the last update, where a parameter is not
/// finite.
std::int64_t spoiling_batch(const InvalidStep& invalid, std::int64_t completed) {
  if (!invalid.spoiled_by) return completed;
  return std::max<std::int64_t>(0, completed - static_cast<std::int64_t>(invalid.step - *invalid.spoiled_by));
}

}  // namespace

SkippedStep SkippedSteps::add(const InvalidLoss& refusal, const StepReport& step, std::int64_t completed) {
  const std::string reason = refusal.what();
  const std::string place = say("epoch ", step.epoch, ", step ", step.step);
  if (choice_ == OnNan::stop)
    throw InvalidLoss(refusal.where(), say(place, ": ", reason, ": training stops before this step's update; try a ",
                                           "lower learning rate, look at the data of this batch, or leave such steps ",
                                           "out (--on-nan skip, TrainerOptions::on_nan)"));
  if (in_a_row_ == most_in_a_row)
    throw InvalidLoss(refusal.where(), say(place, ": ", reason, ": ", most_in_a_row, " steps in a row are left out, ",
                                           "training stops; try a lower learning rate, or start from a checkpoint"));
  // Where the batch was left out already, the one before the step is to blame no more than the step's own.
  if (returns() && !batches_.insert(spoiling_batch(refusal.where(), completed)).second) batches_.insert(completed);
  return {.epoch = step.epoch,
          .step = step.step,
          .steps_in_epoch = step.steps_in_epoch,
          .samples = step.samples,
          .in_a_row = ++in_a_row_,
          .count = ++count_,
          .reason = reason};
}

void SkippedSteps::add_return(const InvalidLoss& refusal, std::int64_t checkpoint) {
  if (std::exchange(returned_to_, checkpoint) != checkpoint) returns_ = 0;
  if (++returns_ > most_in_a_row)
    throw InvalidLoss(refusal.where(),
                      say(refusal.what(), ": training has returned to the checkpoint of step ", checkpoint, " ",
                          most_in_a_row, " times, and stops; try a lower learning ", "rate"));
}

}  // namespace penstock
