#include "penstock/schedule/validate.h"

#include <algorithm>
#include <cstdint>

#include "penstock/base/error.h"
#include "penstock/schedule/rendezvous.h"
#include "penstock/schedule/replay.h"
#include "penstock/schedule/timeline_grid.h"
#include "penstock/schedule/violation.h"

namespace penstock {
namespace {

Validation fail(std::string reason, std::optional<GridCell> cell) {
  return {.ok = false, .reason = std::move(reason), .cell = cell, .peak_activations = {}};
}
Validation fail(Violation violation) { return fail(std::move(violation.reason), violation.cell); }

/// The instruction whose execution a rank that waits for `event` needs: for an arrival whose receive is posted already,
/// the send.
std::optional<GridCell> obstacle(const Schedule& schedule, const Dependencies& dependencies, const Reach& progress,
                                 std::size_t event) {
  const std::optional<GridCell> cell = find_producer(schedule, dependencies, event);
  if (!cell || cell->position >= progress.reached[cell->rank.index()]) return cell;
  const Instruction& instruction = schedule.orders[cell->rank.index()][static_cast<std::size_t>(cell->position)];
  if (!is_receive(instruction.op())) return cell;
  std::size_t sent = event;
  dependencies.for_each_predecessor(instruction, [&](const Event& needed) { sent = dependencies.index(needed); });
  return find_producer(schedule, dependencies, sent);
}

struct Activations {
  std::vector<int> peak;  // per rank
  std::optional<Violation> exceeded;
};

/// Counts along each rank's order: the times of instructions do not matter.
Activations count_activations(const Schedule& schedule, const std::optional<std::vector<int>>& bound) {
  const bool forward_only = schedule.is_forward_only();
  Activations result;
  for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank) {
    const Order& order = schedule.orders[rank];
    int live = 0;
    int peak = 0;
    for (std::size_t k = 0; k < order.size(); ++k) {
      const Instruction& instruction = order[k];
      if (instruction.op() == Op::backward) --live;
      if (instruction.op() == Op::weight_grad) live -= instruction.micro_batch_count();
      if (instruction.op() != Op::forward) continue;
      peak = std::max(peak, ++live);
      if (bound && live > (*bound)[rank] && !result.exceeded)
        result.exceeded = Violation{say(to_string(instruction), " makes rank ", rank, " hold ", live,
                                        " live micro-batches, its bound is ", (*bound)[rank]),
                                    GridCell{Rank(static_cast<std::int32_t>(rank)), static_cast<int>(k)}};
      if (forward_only) --live;
    }
    result.peak.push_back(peak);
  }
  return result;
}

Validation validate_with(const Schedule& schedule, const Dependencies& dependencies, const ValidateOptions& options) {
  if (auto violation = find_incomplete(schedule, dependencies)) return fail(*std::move(violation));
  if (auto violation = find_disorder(schedule)) return fail(*std::move(violation));
  const auto run = [](Rank, int, const Instruction&, double) { return 0.0; };
  const Reach progress = replay(schedule, dependencies, no_message_time, run);
  if (!progress.finished)
    return fail(deadlock(schedule, progress, {.obstacle = [&](std::size_t event) {
                           return obstacle(schedule, dependencies, progress, event);
                         }}));
  if (options.posts)
    if (auto violation = find_lack_of_posts(schedule, dependencies, *options.posts)) return fail(*std::move(violation));
  if (options.activation_bound && options.activation_bound->size() != schedule.orders.size())
    return fail(say("the activation bound is given for ", options.activation_bound->size(), " ranks, there are ",
                    schedule.orders.size()),
                {});
  Activations activations = count_activations(schedule, options.activation_bound);
  if (activations.exceeded) return fail(*std::move(activations.exceeded));
  return {.ok = true, .reason = {}, .cell = {}, .peak_activations = std::move(activations.peak)};
}

}  // namespace

Validation validate(const Schedule& schedule, const ValidateOptions& options) {
  if (auto violation = find_misplaced(schedule)) return fail(*std::move(violation));
  try {
    return validate_with(schedule, Dependencies(schedule, options.links ? *options.links : links_of(schedule)),
                         options);
  } catch (const ScheduleError& error) {  // invalid options.links
    return fail(error.what(), {});
  }
}

void Validation::require_ok(const Schedule& schedule) const {
  if (ok) return;
  constexpr int columns = 24;
  throw ScheduleError(reason + "\n" + timeline_grid(schedule, {.marked = cell, .max_columns = columns}));
}

}  // namespace penstock
