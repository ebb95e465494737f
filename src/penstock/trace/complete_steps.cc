#include "penstock/trace/complete_steps.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "penstock/base/error.h"

namespace penstock {
namespace {

/// True if the compute instructions of `step` are `instructions`, in the same order.
bool has_executed(const RankStep& step, const Order& instructions) {
  auto expected = instructions.begin();
  for (const Span& span : step.spans) {
    if (span.activity != Activity::compute) continue;
    if (expected == instructions.end() || !(*expected == span.instruction)) return false;
    ++expected;
  }
  return expected == instructions.end();
}

/// The step with its begin and end; none if no rank computed in it.
std::optional<WorldStep> bounded(std::uint64_t number, std::vector<const RankStep*> ranks) {
  WorldStep step{number, std::move(ranks), std::numeric_limits<std::int64_t>::max(), 0};
  bool has_compute = false;
  for (const RankStep* rank : step.ranks)
    for (const Span& span : rank->spans) {
      if (span.activity == Activity::compute) {
        has_compute = true;
        step.begin_ns = std::min(step.begin_ns, span.begin_ns);
      }
      if (is_busy(span)) step.end_ns = std::max(step.end_ns, span.end_ns);
    }
  if (!has_compute) return std::nullopt;
  return step;
}

}  // namespace

std::vector<StageId> stages_of(const Schedule& schedule, Rank rank) {
  std::vector<StageId> stages;
  for (StageId stage(0); stage.value() < schedule.stage_count(); stage = stage.next())
    if (schedule.copy_on(stage, rank)) stages.push_back(stage);
  return stages;
}

std::vector<WorldStep> complete_steps(const Trace& trace) {
  const Schedule compute = strip(trace.schedule);
  std::map<std::uint64_t, std::vector<const RankStep*>> seen;
  for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank)
    for (const RankStep& step : trace.ranks[rank]) {
      if (!has_executed(step, compute.orders[pipeline_rank(trace, rank).index()])) continue;
      std::vector<const RankStep*>& by_rank = seen[step.step];
      if (by_rank.size() == rank) by_rank.push_back(&step);
    }

  std::vector<WorldStep> steps;
  for (auto& [number, ranks] : seen)
    if (ranks.size() == trace.ranks.size())
      if (auto step = bounded(number, std::move(ranks))) steps.push_back(std::move(*step));
  require<DataError>(!steps.empty(), "the trace holds no step that all ", trace.ranks.size(), " ranks ran to its end ",
                     "with ", trace.schedule.micro_batches,
                     " micro-batches: trace at least one full training step (a "
                     "step of more than some 500,000 instructions on a rank is too long to be kept)");
  if (steps.size() > 1) steps.erase(steps.begin());
  return steps;
}

WorldStep median_step(const Trace& trace) {
  std::vector<WorldStep> steps = complete_steps(trace);
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>((steps.size() - 1) / 2);
  std::nth_element(steps.begin(), middle, steps.end(), [](const WorldStep& a, const WorldStep& b) {
    return std::pair(a.makespan_ns(), a.step) < std::pair(b.makespan_ns(), b.step);
  });
  return *middle;
}

}  // namespace penstock
