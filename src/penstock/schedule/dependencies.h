// The dependencies of instructions. This file is the only place that defines them; lower(), validate(), simulate(), the
// executor and error messages all use it.
//
// An instruction waits for *events*, not for other instructions. For example, the event "F3 of stage 2 is done" does
// not depend on the rank that computes it.
//
//   done_forward(s, i)    produced by sFi
//   done_input(s, i)      produced by sBi or sIi: the gradient of the stage's inputs is available
//   done_weight(s, i)     produced by sBi or sWi (a fused W produces one event per micro-batch of its range)
//   sent(link, dir, i)    produced by SEND; arrived(link, dir, i) by RECV (one per link and direction)
//   reduced(s), normed(s) produced by REDUCE and NORM
//
//   instruction  needs
//   sFi          for every link a>s: done_forward(a, i) on the same rank, else arrived(a>s, forward, i)
//   sBi, sIi     done_forward(s, i); for every gradient link s>b: done_input(b, i) on the same rank,
//                else arrived(s>b, backward, i)
//   sWi..j       done_input(s, k) for k in i..j
//   sSEND_Fi>b   done_forward(s, i)            bRECV_Fi<s   sent(s>b, forward, i)
//   bSEND_Bi>s   done_input(b, i)              sRECV_Bi<b   sent(s>b, backward, i)
//   sREDUCE      done_weight(s, i) for all i
//   sNORM        reduced(s); if the stage has no REDUCE, what REDUCE would need
//   sSTEP        normed(s); if the stage has no NORM, what NORM would need
//
// A schedule that is not lowered has no messages: a stage then needs the event of its neighbour directly, on any rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/schedule/instruction.h"

namespace penstock {

/// A data dependency of a consumer stage on an earlier producer stage. The stages may be neighbours; a link between
/// other stages is a skip link.
struct Link {
  StageId from;
  StageId to;
  bool gradient = true;  // false: the link carries no gradient (integers, frozen layers), and there is no B message

  friend auto operator<=>(const Link&, const Link&) = default;
};

using Links = std::vector<Link>;

/// "0>3".
std::string to_string(const Link& link);

/// The link that a SEND or RECV runs along.
Link link_of(const Instruction& message);

/// The links 0>1, 1>2, ...: every stage passes its output to the next one.
Links chain(int stages);

/// The links of a lowered schedule, inferred from its messages; chain() for a schedule that is not lowered. Stages of
/// one rank exchange no messages, so neighbours on one rank count as linked. Every stage but the first has an input and
/// every stage but the last has an output, so a stage without such a link counts as linked to its neighbour. Messages
/// from or to stages that do not exist are ignored.
Links links_of(const Schedule& schedule);
/// The links of a lowered schedule that a pipeline has executed: those with messages, and neighbours on one rank.
/// Unlike links_of(), which reads any file, it accepts stages without a link, such as one that reads the network's
/// inputs only.
Links executed_links(const Schedule& schedule);

enum class EventKind : std::uint8_t {
  done_forward,
  done_input,
  done_weight,
  sent_forward,
  sent_backward,
  arrived_forward,
  arrived_backward,
  reduced,
  normed,
  stepped
};

struct Event {
  EventKind kind;
  StageId stage;  // for messages: the producer stage of the link, in both directions
  StageId to;     // for messages: the consumer stage of the link
  MicroBatch micro_batch;

  friend bool operator==(const Event&, const Event&) = default;
};

std::string to_string(const Event& event);

/// The dependencies in one schedule with one set of links. Holds no reference to the schedule; all queries are const
/// and thread-safe.
class Dependencies {
 public:
  /// Throws ScheduleError for a link that does not lead to a later stage, leaves 0..S-1 or is given twice.
  Dependencies(const Schedule& schedule, Links links);

  /// The events that must have happened before `instruction` may run. Throws ScheduleError for an instruction that does
  /// not fit the schedule: a stage or micro-batch out of range, a message that belongs to no link.
  std::vector<Event> predecessors(const Instruction& instruction) const;
  /// The events that `instruction` produces. Throws like predecessors().
  std::vector<Event> gives(const Instruction& instruction) const;

  /// The same two queries without allocation: they call `visit(const Event&)` for each event. They check nothing; the
  /// instruction must be in range.
  template <class Visit>
  void for_each_predecessor(const Instruction& instruction, Visit&& visit) const;
  template <class Visit>
  void for_each_given(const Instruction& instruction, Visit&& visit) const;

  /// Events are numbered densely, 0..event_count()-1, so that a table of them is a flat array. Message events exist
  /// only for links that cross ranks, and only in lowered schedules. index() and event() are inverse to each other;
  /// they throw ScheduleError for a message event that does not exist and for an index out of range.
  std::size_t event_count() const { return first_message_event() + message_event_count(); }
  std::size_t index(const Event& event) const;
  Event event(std::size_t index) const;

  /// All links, by producer, then consumer.
  const Links& links() const { return links_; }
  /// The links that leave `stage`.
  std::span<const Link> outgoing(StageId stage) const { return part_of_stage(links_, first_send_, stage); }
  /// The links that end at `stage`, by producer.
  std::span<const Link> incoming(StageId stage) const { return part_of_stage(incoming_, first_incoming_, stage); }
  /// True if the two ends of `link` are on different ranks for micro-batch i. A lowered schedule then has messages for
  /// it.
  bool crosses(const Link& link, MicroBatch i) const {
    return placed_.rank_of(link.from, i) != placed_.rank_of(link.to, i);
  }
  /// The number of micro-batches for which `link` crosses ranks.
  int crossing_count(const Link& link) const;
  /// The number of the link `from`>`to` among the links that cross ranks in any pipeline, 0..lane_count()-1; none for
  /// all other pairs of stages.
  std::optional<std::size_t> lane(StageId from, StageId to) const;
  std::size_t lane_count() const { return link_of_lane_.size(); }
  const Link& link_of_lane(std::size_t lane) const { return links_[link_of_lane_[lane]]; }

 private:
  static std::span<const Link> part_of_stage(const Links& links, const std::vector<std::size_t>& first, StageId stage) {
    return std::span(links).subspan(first[stage.index()], first[stage.index() + 1] - first[stage.index()]);
  }
  bool by_message(const Link& link, MicroBatch i) const { return lowered_ && crosses(link, i); }
  std::size_t stage_count() const { return placed_.rank_of_stage.size(); }
  std::size_t first_step_event() const { return 3 * stage_count() * static_cast<std::size_t>(micro_batches_); }
  std::size_t first_message_event() const { return first_step_event() + 3 * stage_count(); }
  std::size_t message_event_count() const {
    return lowered_ ? 4 * lane_count() * static_cast<std::size_t>(micro_batches_) : 0;
  }
  void check_place(const Instruction& instruction) const;
  template <class Visit>
  void for_each_weight_of_stage(StageId stage, Visit&& visit) const;

  int micro_batches_ = 0;
  bool lowered_ = false;
  Schedule placed_;                          // the placement of the stages, without instructions
  std::vector<int> in_pipeline_;             // per pipeline: the number of its micro-batches
  Links links_;                              // by producer
  Links incoming_;                           // the same, by consumer
  std::vector<std::size_t> first_send_;      // S + 1 entries: the begin of each stage's part of links_
  std::vector<std::size_t> first_incoming_;  // the same for incoming_
  std::vector<std::size_t> lane_;            // per link of links_; no_lane if both ends are on one rank
  std::vector<std::size_t> link_of_lane_;
  std::vector<bool> reduces_;  // per stage: the schedule has a REDUCE for it
  std::vector<bool> norms_;    // per stage: the schedule has a NORM for it
};

template <class Visit>
void Dependencies::for_each_weight_of_stage(StageId stage, Visit&& visit) const {
  for (MicroBatch i(0); i.value() < micro_batches_; i = i.next()) visit(Event{EventKind::done_weight, stage, stage, i});
}

template <class Visit>
void Dependencies::for_each_predecessor(const Instruction& instruction, Visit&& visit) const {
  const StageId stage = instruction.stage();
  const StageId peer = instruction.peer();
  const MicroBatch i = instruction.micro_batch();
  switch (instruction.op()) {
    case Op::forward:
      for (const Link& link : incoming(stage))
        visit(by_message(link, i) ? Event{EventKind::arrived_forward, link.from, stage, i}
                                  : Event{EventKind::done_forward, link.from, link.from, i});
      break;
    case Op::backward:
    case Op::input_grad:
      visit(Event{EventKind::done_forward, stage, stage, i});
      for (const Link& link : outgoing(stage))
        if (link.gradient)
          visit(by_message(link, i) ? Event{EventKind::arrived_backward, stage, link.to, i}
                                    : Event{EventKind::done_input, link.to, link.to, i});
      break;
    case Op::weight_grad:
      for (MicroBatch k = instruction.first(); k <= instruction.last(); k = k.next())
        visit(Event{EventKind::done_input, stage, stage, k});
      break;
    case Op::send_forward: visit(Event{EventKind::done_forward, stage, stage, i}); break;
    case Op::recv_forward: visit(Event{EventKind::sent_forward, peer, stage, i}); break;
    case Op::send_backward: visit(Event{EventKind::done_input, stage, stage, i}); break;
    case Op::recv_backward: visit(Event{EventKind::sent_backward, stage, peer, i}); break;
    case Op::reduce: for_each_weight_of_stage(stage, visit); break;
    case Op::norm:
    case Op::step:
      if (instruction.op() == Op::step && norms_[stage.index()])
        visit(Event{EventKind::normed, stage, stage, MicroBatch(0)});
      else if (reduces_[stage.index()])
        visit(Event{EventKind::reduced, stage, stage, MicroBatch(0)});
      else
        for_each_weight_of_stage(stage, visit);
      break;
  }
}

template <class Visit>
void Dependencies::for_each_given(const Instruction& instruction, Visit&& visit) const {
  const StageId stage = instruction.stage();
  const StageId peer = instruction.peer();
  const MicroBatch i = instruction.micro_batch();
  switch (instruction.op()) {
    case Op::forward: visit(Event{EventKind::done_forward, stage, stage, i}); break;
    case Op::backward:
      visit(Event{EventKind::done_input, stage, stage, i});
      visit(Event{EventKind::done_weight, stage, stage, i});
      break;
    case Op::input_grad: visit(Event{EventKind::done_input, stage, stage, i}); break;
    case Op::weight_grad:
      for (MicroBatch k = instruction.first(); k <= instruction.last(); k = k.next())
        visit(Event{EventKind::done_weight, stage, stage, k});
      break;
    case Op::send_forward: visit(Event{EventKind::sent_forward, stage, peer, i}); break;
    case Op::recv_forward: visit(Event{EventKind::arrived_forward, peer, stage, i}); break;
    case Op::send_backward: visit(Event{EventKind::sent_backward, peer, stage, i}); break;
    case Op::recv_backward: visit(Event{EventKind::arrived_backward, stage, peer, i}); break;
    case Op::reduce: visit(Event{EventKind::reduced, stage, stage, MicroBatch(0)}); break;
    case Op::norm: visit(Event{EventKind::normed, stage, stage, MicroBatch(0)}); break;
    case Op::step: visit(Event{EventKind::stepped, stage, stage, MicroBatch(0)}); break;
  }
}

}  // namespace penstock
