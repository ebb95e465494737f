// RankRunner: handling of failures, and the number of updates that parameters have received.
#include <algorithm>
#include <limits>

#include "penstock/base/error.h"
#include "penstock/runtime/rank_runner.h"
#include "penstock/world/failures.h"
#include "penstock/world/reason.h"

namespace penstock {

// Cancels the step on every rank where no parameter can have been updated; otherwise aborts the world.
std::exception_ptr RankRunner::failed(const std::exception_ptr& error, const std::string& doing) {
  Transport& transport = endpoint();
  const std::string reason = say("rank ", context().rank.value(), " (stage ", current_.stage().value(), ") failed at ",
                                 doing, ": ", reason_of(error));
  try {
    std::rethrow_exception(error);
  } catch (const PipelineCancelled& cancelled) {
    return std::make_exception_ptr(RankFailure(cancelled.what()));
  } catch (const StepCancelled& cancelled) {
    return std::make_exception_ptr(StepFailure(cancelled.what()));
  } catch (const TransportError&) {
  } catch (...) {
    if (job_ && is_harmless(*job_) && !transport.aborted()) {
      transport.cancel({setting_.pipeline, job_->step}, reason);
      return std::make_exception_ptr(StepFailure(reason));
    }
  }
  if (!transport.aborted()) transport.abort(reason);
  return std::make_exception_ptr(RankFailure(transport.aborted().value_or(reason)));
}

// While a rank has forwards left, no stage of any rank can have complete gradients or updated parameters.
bool RankRunner::is_harmless(const StepJob& job) const {
  if (job.part != StepPart::whole) return false;
  if (job.inference && job.inference->session) return false;  // layers may have stored a part of the sequence
  return !job.training || forwards_left_ > 0;
}

RankRunner::Updates RankRunner::updates() const {
  Updates updates{std::numeric_limits<std::int64_t>::max(), 0, is_updating_};
  for (const auto& stage : stages_) {
    const auto found = updates_.find(stage->id());
    const std::int64_t count = found == updates_.end() ? 0 : found->second;
    updates.fewest = std::min(updates.fewest, count);
    updates.most = std::max(updates.most, count);
  }
  return updates;
}

}  // namespace penstock
