#include "penstock/pipeline/step_parts.h"

#include "penstock/base/error.h"

namespace penstock {

void StepParts::update_every(int calls) {
  require_whole_steps("update_every");
  require<ConfigError>(calls >= 1, "an update every ", calls, " calls: give at least 1");
  calls_per_update_ = calls;
}

void StepParts::require_whole_steps(const char* what) const {
  require<ConfigError>(!has_gradients(), what, " while gradients wait for their update: call step() first");
}

void StepParts::require_forward_backward() const {
  require<ConfigError>(next_ != StepPart::update,
                       "forward_backward between reduce_gradients and the update: call step() first");
}

void StepParts::require_later(StepPart part) const {
  require<ConfigError>(next_ == part || (part == StepPart::update && needs_reduction()),
                       part == StepPart::reduce ? "reduce_gradients" : "step",
                       has_gradients() ? " a second time: call step() once it is done"
                                       : " without gradients: call forward_backward first");
}

// Under Reduction::mean, the gradients of earlier calls are scaled down as further samples are added.
void StepParts::begin(const std::shared_ptr<StepJob>& job, double weight) {
  const double before = weight_;
  weight_ += weight;
  const bool continues = calls_++ > 0;
  if (continues && weight_ > 0)
    job->shares = {true, before / weight_, weight / weight_};
  else
    job->shares = {.continues = continues};
  next_ = StepPart::reduce;
  begun_ = job;
}

void StepParts::end(StepPart part) {
  calls_ = 0;
  weight_ = 0;
  next_ = part == StepPart::reduce ? StepPart::update : StepPart::whole;
  if (part == StepPart::update) begun_.reset();
}

}  // namespace penstock
