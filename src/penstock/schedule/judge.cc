#include "penstock/schedule/judge.h"

#include <algorithm>
#include <cstdint>

#include "penstock/base/error.h"
#include "penstock/schedule/board.h"
#include "penstock/schedule/fault.h"
#include "penstock/schedule/replay.h"

namespace penstock {
namespace {

Verdict fail(std::string reason, std::optional<BoardCell> cell) {
  return {.ok = false, .reason = std::move(reason), .cell = cell, .peak_activations = {}};
}
Verdict fail(Fault fault) { return fail(std::move(fault.reason), fault.cell); }

/// The word that gives `event`, as a cell; none when no word of `schedule` does.
std::optional<BoardCell> giver(const Schedule& schedule, const Dependencies& dependencies, std::size_t event) {
  for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank)
    for (std::size_t k = 0; k < schedule.orders[rank].size(); ++k) {
      bool gives = false;
      dependencies.for_each_given(schedule.orders[rank][k],
                                  [&](const Event& given) { gives = gives || dependencies.index(given) == event; });
      if (gives) return BoardCell{Rank(static_cast<std::int32_t>(rank)), static_cast<int>(k)};
    }
  return std::nullopt;
}

/// The word that keeps a rank waiting for `event`: for an arrival whose receive is posted already, the send.
std::optional<BoardCell> obstacle(const Schedule& schedule, const Dependencies& dependencies, const Reach& progress,
                                  std::size_t event) {
  const std::optional<BoardCell> cell = giver(schedule, dependencies, event);
  if (!cell || cell->position >= progress.reached[cell->rank.index()]) return cell;
  const Instruction& word = schedule.orders[cell->rank.index()][static_cast<std::size_t>(cell->position)];
  if (!is_receive(word.op())) return cell;
  std::size_t sent = event;
  dependencies.for_each_predecessor(word, [&](const Event& needed) { sent = dependencies.index(needed); });
  return giver(schedule, dependencies, sent);
}

/// Follows the ranks that wait for each other until one comes up again: that circle is the deadlock, and its cell is
/// on it.
Fault deadlock(const Schedule& schedule, const Dependencies& dependencies, const Reach& progress) {
  const auto word_at = [&](const BoardCell& cell) {
    return to_string(schedule.orders[cell.rank.index()][static_cast<std::size_t>(cell.position)]);
  };
  std::size_t rank = 0;
  while (static_cast<std::size_t>(progress.reached[rank]) == schedule.orders[rank].size()) ++rank;

  constexpr std::size_t told = 6;
  std::vector<bool> seen(schedule.orders.size(), false);
  BoardCell stuck{Rank(static_cast<std::int32_t>(rank)), progress.reached[rank]};
  std::string reason = say("deadlock: rank ", rank, " is at ", word_at(stuck));
  for (std::size_t told_ranks = 0; !seen[rank]; ++told_ranks) {
    seen[rank] = true;
    const std::optional<BoardCell> needed = obstacle(schedule, dependencies, progress, progress.missing[rank]);
    if (!needed) return {reason + ", which needs what no word gives", stuck};
    stuck = {needed->rank, progress.reached[needed->rank.index()]};
    if (needed->rank.index() == rank)
      return {reason + say(", which needs ", word_at(*needed), ", later on that rank"), stuck};
    if (told_ranks < told)
      reason +=
          say(", which needs ", word_at(*needed), " of rank ", needed->rank.value(), ", which is at ", word_at(stuck));
    else if (told_ranks == told)
      reason += ", and so on";
    rank = needed->rank.index();
  }
  return {reason, stuck};
}

struct Activations {
  std::vector<int> peak;  // per rank
  std::optional<Fault> exceeded;
};

/// Counted along each rank's order: how long a word takes does not matter.
Activations count_activations(const Schedule& schedule, const std::optional<std::vector<int>>& bound) {
  const bool forward_only = schedule.is_forward_only();
  Activations result;
  for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank) {
    const Order& order = schedule.orders[rank];
    int live = 0;
    int peak = 0;
    for (std::size_t k = 0; k < order.size(); ++k) {
      const Instruction& word = order[k];
      if (word.op() == Op::backward) --live;
      if (word.op() == Op::weight_grad) live -= word.micro_batch_count();
      if (word.op() != Op::forward) continue;
      peak = std::max(peak, ++live);
      if (bound && live > (*bound)[rank] && !result.exceeded)
        result.exceeded = Fault{say(to_string(word), " makes rank ", rank, " hold ", live,
                                    " live micro-batches, its bound is ", (*bound)[rank]),
                                BoardCell{Rank(static_cast<std::int32_t>(rank)), static_cast<int>(k)}};
      if (forward_only) --live;
    }
    result.peak.push_back(peak);
  }
  return result;
}

Verdict judge_with(const Schedule& schedule, const Dependencies& dependencies, const JudgeOptions& options) {
  if (auto fault = find_incomplete(schedule, dependencies)) return fail(*std::move(fault));
  if (auto fault = find_disorder(schedule)) return fail(*std::move(fault));
  const auto run = [](Rank, int, const Instruction&, double) { return 0.0; };
  const Reach progress = replay(schedule, dependencies, 0, run);
  if (!progress.finished) return fail(deadlock(schedule, dependencies, progress));
  if (options.activation_bound && options.activation_bound->size() != schedule.orders.size())
    return fail(say("the activation bound is given for ", options.activation_bound->size(), " ranks, there are ",
                    schedule.orders.size()),
                {});
  Activations activations = count_activations(schedule, options.activation_bound);
  if (activations.exceeded) return fail(*std::move(activations.exceeded));
  return {.ok = true, .reason = {}, .cell = {}, .peak_activations = std::move(activations.peak)};
}

}  // namespace

Verdict judge(const Schedule& schedule, const JudgeOptions& options) {
  if (auto fault = find_misplaced(schedule)) return fail(*std::move(fault));
  try {
    return judge_with(schedule, Dependencies(schedule, options.links ? *options.links : links_of(schedule)), options);
  } catch (const PlanError& error) {  // links that no model can have
    return fail(error.what(), {});
  }
}

void Verdict::require_ok(const Schedule& schedule) const {
  if (ok) return;
  constexpr int columns = 24;
  throw PlanError(reason + "\n" + board(schedule, {.marked = cell, .max_columns = columns}));
}

}  // namespace penstock
