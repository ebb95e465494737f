// The assignment of receive buffers: which buffer each message of a step is received into, so that buffers are
// allocated once and used again within a step and in every step.
//
// All messages of one link in one direction have one shape. So every link has buffers of its own per direction,
// numbered 0..count-1, and a message is received into one of them. A buffer is
//
//   occupied  when the receive of its message is posted (channel.h): early, by the number of posts
//   released  after the instruction that reads the message for the last time. A forward value is an input of its stage:
//             B reads it last, W if B is split, F if the schedule is forward-only. A gradient of the stage's outputs:
//             B, or W if B is split, since the W of a layer that is split needs it
//
// A message occupies the lowest buffer that is free. Occupied times are intervals of one rank's list, in the order of
// their begins, so this needs no more buffers than are occupied at one time: the least number. The order of lists and
// posts determines it, no clock does. All buffers are free at the end of a step.
//
// A value that a stage passes on unchanged lives longer than that: its memory must not be used again (receive_memory.h).
#pragma once

#include <optional>
#include <vector>

#include "penstock/schedule/channel.h"
#include "penstock/schedule/dependencies.h"

namespace penstock {

/// The buffers of one link in one direction, on the rank that receives.
struct LinkBuffers {
  Link link;
  Direction direction = Direction::forward;
  int count = 0;
  std::vector<int> buffer_of = {};  // per micro-batch

  friend bool operator==(const LinkBuffers&, const LinkBuffers&) = default;
};

/// The buffers of all links that cross ranks, ordered by link and direction. With fewer than least_posts() posts the
/// step does not run to its end; `posts` is the number per channel. Throws like channels_of(), and ScheduleError for
/// fewer posts than Channel::order_posts.
std::vector<LinkBuffers> assign_buffers(const Schedule& schedule, int posts, const std::optional<Links>& links = {});

}  // namespace penstock
