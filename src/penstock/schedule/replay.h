// Runs a schedule symbolically: every rank takes its instructions in order, each as soon as its dependencies are met.
// validate(), simulate() and timeline_grid() all use this loop, with messages that wait nowhere; rendezvous.h uses it
// with a bounded number of posts. Inside this module only.
//
// Every rank keeps its order, so the resulting times do not depend on the order in which the loop visits ranks. No
// priority queue of events is needed, and the time is linear in the number of instructions and dependencies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

#include "penstock/schedule/dependencies.h"

namespace penstock {

/// The result of a replay.
struct Reach {
  bool finished = true;
  std::vector<int> reached;          // per rank: the number of its instructions that have run
  std::vector<std::size_t> missing;  // per rank that did not finish: the event that its next instruction waits for
};

/// The time of each event, or the ranks that wait for it, one number per event; and the ranks that can go on.
class EventTable {
 public:
  /// All ranks can go on, rank 0 first.
  EventTable(std::size_t events, std::size_t ranks) : entries_(events, nobody), next_waiter_(ranks, nobody) {
    for (std::size_t rank = ranks; rank > 0; --rank) runnable_.push_back(rank - 1);
  }

  bool happened(std::size_t event) const { return entries_[event] >= 0; }
  double time(std::size_t event) const { return entries_[event]; }

  /// Adds `rank` to the ranks that wait for `event`, which has not happened. A rank waits for one event at a time.
  void wait(std::size_t event, std::size_t rank) {
    next_waiter_[rank] = entries_[event];
    entries_[event] = first_waiter - static_cast<double>(rank);
  }

  /// Sets the time of `event`. The ranks that wait for it can go on.
  void happen(std::size_t event, double time) {
    double entry = entries_[event];
    entries_[event] = time;
    while (entry <= first_waiter) {
      const auto rank = static_cast<std::size_t>(first_waiter - entry);
      entry = next_waiter_[rank];
      runnable_.push_back(rank);
    }
  }

  /// Removes and returns a rank that can go on; none if all ranks wait or have finished.
  std::optional<std::size_t> take_runnable() {
    if (runnable_.empty()) return std::nullopt;
    const std::size_t rank = runnable_.back();
    runnable_.pop_back();
    return rank;
  }

  /// Marks a send event as awaited by a receive that was posted before it. Only replay() uses the mark; there, ranks
  /// wait for arrivals, never for sends.
  void post(std::size_t sent) { entries_[sent] = posted; }
  bool is_posted(std::size_t sent) const { return entries_[sent] == posted; }

 private:
  static constexpr double nobody = -1;
  static constexpr double posted = -2;
  static constexpr double first_waiter = -3;  // rank r is encoded as -3 - r

  std::vector<double> entries_;      // a time, or one of the codes above
  std::vector<double> next_waiter_;  // per rank: the rank that waited for the same event before it, in the same code
  std::vector<std::size_t> runnable_;
};

/// The event "arrived" of the message with the event `sent`, and the reverse.
constexpr Event arrival_of(Event sent) {
  sent.kind = sent.kind == EventKind::sent_forward ? EventKind::arrived_forward : EventKind::arrived_backward;
  return sent;
}
constexpr Event sending_of(Event arrived) {
  arrived.kind = arrived.kind == EventKind::arrived_forward ? EventKind::sent_forward : EventKind::sent_backward;
  return arrived;
}
/// Whether an instruction that needs `event` waits for a message.
constexpr bool is_arrival(const Event& event) {
  return event.kind == EventKind::arrived_forward || event.kind == EventKind::arrived_backward;
}

/// The `message_time` of a replay that only asks for the order.
inline constexpr auto no_message_time = [](StageId, StageId) { return 0.0; };

/// "Waits for nothing".
constexpr std::size_t no_event = std::numeric_limits<std::size_t>::max();

/// Calls `step(rank, position, instruction)` for every instruction in the order of its rank. `step` executes it and
/// returns no_event; or it returns the event that the instruction waits for, and is called again once that has
/// happened.
template <class Step>
Reach run_lists(const Schedule& schedule, EventTable& events, Step&& step) {
  const std::size_t ranks = schedule.orders.size();
  Reach progress{.finished = true, .reached = std::vector<int>(ranks, 0), .missing = {}};
  progress.missing.assign(ranks, 0);
  while (const std::optional<std::size_t> rank = events.take_runnable()) {
    const Order& order = schedule.orders[*rank];
    for (int& position = progress.reached[*rank]; static_cast<std::size_t>(position) < order.size(); ++position) {
      const std::size_t missing = step(*rank, position, order[static_cast<std::size_t>(position)]);
      if (missing == no_event) continue;
      progress.missing[*rank] = missing;
      events.wait(missing, *rank);
      break;
    }
  }
  for (std::size_t rank = 0; rank < ranks; ++rank)
    if (static_cast<std::size_t>(progress.reached[rank]) < schedule.orders[rank].size()) progress.finished = false;
  return progress;
}

/// Calls `run(rank, position, instruction, ready)` for every instruction except receives, each after its dependencies.
/// `ready` is the time at which they were met, and `run` returns the time at which the instruction's events happen. A
/// receive is posted at once, and its message arrives `message_time(from, to)` after the send, for the stages of both.
///
/// Every instruction must be in range (find_misplaced) and every message must belong to a link that crosses ranks
/// (find_incomplete or is_replayable). An event that is produced twice gets the time of its second producer.
template <class MessageTime, class Run>
Reach replay(const Schedule& schedule, const Dependencies& dependencies, MessageTime&& message_time, Run&& run) {
  EventTable events(dependencies.event_count(), schedule.orders.size());

  const auto receive = [&](const Instruction& instruction) {
    Event event;
    dependencies.for_each_predecessor(instruction, [&](const Event& sent) { event = sent; });
    const std::size_t sent = dependencies.index(event);
    if (events.happened(sent))
      events.happen(dependencies.index(arrival_of(event)),
                    events.time(sent) + message_time(instruction.peer(), instruction.stage()));
    else
      events.post(sent);
  };

  // The time at which the dependencies of `instruction` were met; if they are not, -1, and `missing` is set.
  std::size_t missing = no_event;
  const auto needs_met = [&](std::size_t rank, const Instruction& instruction) {
    double ready = 0;
    dependencies.for_each_predecessor(instruction, [&](const Event& event) {
      if (ready < 0) return;
      const std::size_t index = dependencies.index(event);
      if (!events.happened(index)) {
        ready = -1;
        missing = index;
        return;
      }
      const bool direct = event.kind == EventKind::done_forward || event.kind == EventKind::done_input;
      const bool carried = direct && schedule.rank_of(event.stage, event.micro_batch).index() != rank;
      ready = std::max(ready, events.time(index) + (carried ? message_time(event.stage, instruction.stage()) : 0));
    });
    return ready;
  };

  const auto give = [&](const Instruction& instruction, double time) {
    dependencies.for_each_given(instruction, [&](const Event& event) {
      const std::size_t index = dependencies.index(event);
      const bool awaited = is_send(instruction.op()) && events.is_posted(index);
      events.happen(index, time);
      if (awaited)
        events.happen(dependencies.index(arrival_of(event)),
                      time + message_time(instruction.stage(), instruction.peer()));
    });
  };

  return run_lists(schedule, events, [&](std::size_t rank, int position, const Instruction& instruction) {
    if (is_receive(instruction.op())) {
      receive(instruction);
      return no_event;
    }
    const double ready = needs_met(rank, instruction);
    if (ready < 0) return missing;
    give(instruction, run(Rank(static_cast<std::int32_t>(rank)), position, instruction, ready));
    return no_event;
  });
}

}  // namespace penstock
