#include "penstock/rank/result.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "penstock/rank/step_state.h"

namespace penstock {

double StepResult::loss() const { return state_->numbers().loss; }
double StepResult::gradient_norm() const { return state_->gradient_norm(); }
bool StepResult::update_skipped() const { return state_->update_skipped(); }
bool StepResult::has_gradient_norm() const { return state_->has_gradient_norm(); }
double StepResult::loss_sum() const { return state_->numbers().loss_sum; }
double StepResult::weight() const { return state_->numbers().weight; }
const std::vector<double>& StepResult::metrics() const { return state_->numbers().metrics; }
bool StepResult::ready() const { return state_->ready(); }
std::optional<BatchOutputs> StepResult::outputs() const {
  state_->wait_until_done();
  return state_->outputs();
}
void StepResult::wait() const { state_->wait_until_done(); }

StepStats StepResult::use() const {
  state_->wait_until_done();
  StepStats total;
  std::int64_t begin = std::numeric_limits<std::int64_t>::max(), end = 0, busy = 0;
  const std::vector<RankUse> uses = state_->uses();
  for (const RankUse& use : uses) {
    total.peak_activations = std::max(total.peak_activations, use.peak_activations);
    busy += use.busy_ns;
    if (use.busy_ns == 0) continue;  // a rank without instructions is idle all the time
    begin = std::min(begin, use.begin_ns);
    end = std::max(end, use.end_ns);
  }
  if (busy > 0)
    total.idle = 1 - static_cast<double>(busy) / (static_cast<double>(end - begin) * static_cast<double>(uses.size()));
  return total;
}

}  // namespace penstock
