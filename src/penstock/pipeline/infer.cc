#include "penstock/pipeline/infer.h"

#include <utility>

#include "penstock/base/error.h"
#include "penstock/rank/job.h"

namespace penstock {

void InferenceSession::restart() {
  state_->rows.reset();
  if (state_->forget) state_->forget(state_->id);
}

bool InferResult::has_outputs() const { return state_->comes_here(); }

const Tensors& InferResult::outputs() const {
  require<ConfigError>(has_outputs(), state_->not_here());
  if (!state_->ready()) step_->require_own_process();
  try {
    return state_->outputs();
  } catch (...) {
    step_->mark_reported(std::current_exception());
    throw;
  }
}

bool InferResult::ready() const { return has_outputs() ? state_->ready() : step_->is_done(); }

void InferResult::wait() const {
  step_->wait_until_done();
  if (has_outputs()) outputs();
}

}  // namespace penstock
