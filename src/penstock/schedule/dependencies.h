// What an instruction needs before it may run: the one place where this is written down. `lower`, `judge`,
// `simulate`, the executor and error messages all ask here.
//
// Instructions do not wait for instructions but for *events*: "F3 of stage 2 is done", whoever does it.
//
//   done_forward(s, i)    given by sFi
//   done_input(s, i)      given by sBi or sIi: the gradient of the stage's inputs is there
//   done_weight(s, i)     given by sBi or sWi (a fused W gives one per micro-batch of its range)
//   sent(link, dir, i)    given by SEND; arrived(link, dir, i) given by RECV (one per link and direction)
//   reduced(s), normed(s) given by REDUCE and NORM
//
//   instruction  needs
//   sFi          for every link a>s: done_forward(a, i) on the same rank, else arrived(a>s, forward, i)
//   sBi, sIi     done_forward(s, i); for every gradient link s>b: done_input(b, i) on the same rank,
//                else arrived(s>b, backward, i)
//   sWi..j       done_input(s, k) for k in i..j
//   sSEND_Fi>b   done_forward(s, i)            bRECV_Fi<s   sent(s>b, forward, i)
//   bSEND_Bi>s   done_input(b, i)              sRECV_Bi<b   sent(s>b, backward, i)
//   sREDUCE      done_weight(s, i) for all i   sNORM  reduced(s)   sSTEP  reduced(s), normed(s) where they exist
//
// Before lowering there are no messages: a stage then needs its neighbour's event directly, whatever the rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/schedule/schedule.h"

namespace penstock {

/// A way from a producer stage to a later consumer stage. Neighbours are links too.
struct Link {
  StageId from;
  StageId to;
  bool gradient = true;  // false: nothing to send back (integers, frozen parts); there is no B message then

  friend auto operator<=>(const Link&, const Link&) = default;
};

using Links = std::vector<Link>;

/// 0>1>2>...: every stage hands over to the next one.
Links chain(int stages);

/// The links of a schedule's SEND words where it is lowered; the chain otherwise.
Links links_of(const Schedule& schedule);

enum class EventKind : std::uint8_t {
  done_forward, done_input, done_weight, sent_forward, sent_backward, arrived_forward, arrived_backward,
  reduced, normed, stepped
};

struct Event {
  EventKind kind;
  StageId stage;           // for messages: the producer stage of the link, in both directions
  StageId to;              // for messages: the consumer stage of the link
  MicroBatch micro_batch;

  friend bool operator==(const Event&, const Event&) = default;
};

std::string to_string(const Event& event);

/// The dependency rule for one schedule's placement and links. Holds copies; cheap to query.
class Dependencies {
 public:
  /// Throws PlanError for a link that does not go forward or leaves 0..S-1.
  Dependencies(const Schedule& schedule, Links links);

  /// What must have happened before `instruction` may run.
  std::vector<Event> predecessors(const Instruction& instruction) const;
  /// What has happened once it ran.
  std::vector<Event> gives(const Instruction& instruction) const;

  /// The same without allocation, for long lists: `visit(const Event&)` for each.
  template <class Visit>
  void for_each_predecessor(const Instruction& instruction, Visit&& visit) const;
  template <class Visit>
  void for_each_given(const Instruction& instruction, Visit&& visit) const;

  /// Events are numbered densely, 0..event_count()-1, so that a table of them is a flat array.
  std::size_t event_count() const;
  std::size_t index(const Event& event) const;
  Event event(std::size_t index) const;

  const Links& links() const { return links_; }

 private:
  // The author of this room completes these.
  Links links_;
};

}  // namespace penstock
