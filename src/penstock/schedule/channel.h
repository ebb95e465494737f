// The channels of a lowered schedule: the order of the messages between two ranks, and when their receives are posted.
//
// A *channel* is an ordered pair of ranks and a direction: values forward or gradients backward. It carries the
// messages of all links between stages of its two ranks. It is a FIFO: its k-th send meets its k-th receive, so that a
// library needs no tags. Both ends derive one order from the lists of the schedule:
//
//   message k   is sent by the k-th SEND of the channel in the sender's list
//   take t      is the t-th wait of the receiver for a message of the channel. Before an instruction runs, it takes the
//               messages that it needs one after the other, in the order of Dependencies::for_each_predecessor. A RECV
//               is only the place before which no message can be taken
//
// The receiver may need messages in another order than that in which they are sent, because of skip links or of several
// stages per rank. So receives are posted early, in the sender's order. With n posts per channel:
//
//   receives    the receives of messages 0..n-1 are posted before the first instruction. Directly after take t, that of
//               message t + n is posted. So at most n receives of a channel are posted and not taken
//   sends       a SEND posts its message and returns. At most n sends of a channel are posted and incomplete: the SEND
//               of message k first waits until message k - n is complete
//   rendezvous  a message is complete when its send and its receive are posted; nothing else stores it
//
// What instructions wait for follows:
//
//   (a) take t of message k waits for the SEND of k. The receive of k must be posted before: k < t + n. Otherwise it
//       would be posted after take k - n >= t of the same rank, and the rank would wait for itself
//   (b) the SEND of message k waits for take k - 2n (none if k < 2n): message k - n is complete once its receive is
//       posted, which happens after take k - 2n, since the SEND of k - n comes earlier in the same list
//
// So a schedule runs to its end with n posts if and only if (a) k < t + n for every take, and the waits of
// dependencies.h, of (a), of (b) and of each list's order form no cycle. No time appears in these waits, so the result
// does not depend on the speed of ranks and messages. More posts only move the waits of (b) to earlier takes and weaken
// (a): a schedule that runs with n posts runs with more. With as many posts as a channel has messages no SEND waits, so
// every schedule that validate() accepts runs with some number of posts (least_posts).
//
// An example: rank 1 needs the messages of two links in another order than they are sent.
//
//   rank 0: 0F0 0SEND_F0>2 1F0 1SEND_F0>3      message 0 of the forward channel 0>1 is 0SEND_F0>2
//   rank 1: 3RECV_F0<1 3F0 2RECV_F0<0 2F0       take 0 is of message 1, take 1 of message 0: 2 posts
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/schedule/instruction.h"

namespace penstock {

enum class Direction : std::uint8_t { forward, backward };

/// "forward" or "backward".
inline const char* to_string(Direction direction) { return direction == Direction::forward ? "forward" : "backward"; }

/// One message of a channel.
struct ChannelMessage {
  StageId from;  // the stage that sends: for a gradient, the consumer of the link
  StageId to;    // the stage that receives
  MicroBatch micro_batch;
  int take = 0;  // the take that gets this message

  friend bool operator==(const ChannelMessage&, const ChannelMessage&) = default;
};

struct Channel {
  Rank from;
  Rank to;
  Direction direction = Direction::forward;
  std::vector<ChannelMessage> messages = {};  // in the sender's order
  std::vector<int> takes = {};                // in the receiver's order: the number of the message that each take gets
  /// The least n with k < t + n for every take: the posts that the receiver's order needs, whatever the ranks wait for.
  int order_posts = 0;

  /// The SEND and the RECV of a message.
  Instruction send(const ChannelMessage& message) const {
    const Op op = direction == Direction::forward ? Op::send_forward : Op::send_backward;
    return Instruction::message(op, message.from, message.to, message.micro_batch);
  }
  Instruction receive(const ChannelMessage& message) const {
    const Op op = direction == Direction::forward ? Op::recv_forward : Op::recv_backward;
    return Instruction::message(op, message.to, message.from, message.micro_batch);
  }

  friend bool operator==(const Channel&, const Channel&) = default;
};

/// "the forward channel of ranks 0>1".
inline std::string to_string(const Channel& channel) {
  return say("the ", to_string(channel.direction), " channel of ranks ", channel.from.value(), ">", channel.to.value());
}

}  // namespace penstock
