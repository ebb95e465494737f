// A second implementation of the model in schedule/channel.h, as simple as possible, for tests: it executes posts,
// sends and takes one by one, and knows neither the library's dependencies nor its channels.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/schedule/dependencies.h"

namespace penstock {

/// Executes a valid, lowered schedule with a number of posts per channel.
class PlainRendezvous {
 public:
  /// `links` are ordered by producer and consumer, as instructions take their messages in that order.
  PlainRendezvous(const Schedule& schedule, Links links, int posts)
      : schedule_(schedule), links_(std::move(links)), posts_(posts), reached_(schedule.orders.size(), 0) {
    std::sort(links_.begin(), links_.end());
    for (const Order& order : schedule.orders)
      for (const Instruction& instruction : order)
        if (is_send(instruction.op())) {
          const bool forward = instruction.op() == Op::send_forward;
          of(instruction.stage(), instruction.peer(), instruction.micro_batch(), forward)
              .order.push_back(name(instruction.stage(), instruction.peer(), instruction.micro_batch()));
        }
  }

  /// True if all lists come to their ends.
  bool works() {
    do {
      progress_ = false;
      for (std::size_t rank = 0; rank < reached_.size(); ++rank)
        if (static_cast<std::size_t>(reached_[rank]) < schedule_.orders[rank].size()) try_step(rank);
    } while (progress_);
    for (std::size_t rank = 0; rank < reached_.size(); ++rank)
      if (static_cast<std::size_t>(reached_[rank]) < schedule_.orders[rank].size()) return false;
    return true;
  }

  /// The number of instructions of `rank` that have run.
  int reached(Rank rank) const { return reached_[rank.index()]; }

 private:
  struct Fifo {
    std::vector<std::string> order;  // as the messages are sent
    std::set<std::string> taken;
    std::size_t sends = 0;  // posted

    std::size_t receives(int posts) const {  // posted
      return std::min(order.size(), taken.size() + static_cast<std::size_t>(posts));
    }
    std::size_t complete(int posts) const { return std::min(sends, receives(posts)); }
  };

  static std::string name(StageId from, StageId to, MicroBatch i) {
    return say(from.value(), ">", to.value(), " ", i.value());
  }
  Fifo& of(StageId from, StageId to, MicroBatch i, bool forward) {
    return fifos_[{schedule_.rank_of(from, i).value(), schedule_.rank_of(to, i).value(), forward}];
  }

  /// True if the message is taken already, or can be taken now.
  bool take(StageId from, StageId to, MicroBatch i, bool forward) {
    Fifo& fifo = of(from, to, i, forward);
    const std::string message = name(from, to, i);
    if (fifo.taken.contains(message)) return true;
    const auto number =
        static_cast<std::size_t>(std::find(fifo.order.begin(), fifo.order.end(), message) - fifo.order.begin());
    if (number >= fifo.complete(posts_)) return false;
    fifo.taken.insert(message);
    progress_ = true;
    return true;
  }

  /// Executes the next instruction of `rank`, or as many of its takes as are possible.
  void try_step(std::size_t rank) {
    const Instruction& instruction = schedule_.orders[rank][static_cast<std::size_t>(reached_[rank])];
    const StageId stage = instruction.stage();
    const MicroBatch i = instruction.micro_batch();
    const auto crosses = [&](const Link& link) {
      return schedule_.rank_of(link.from, i) != schedule_.rank_of(link.to, i);
    };
    if (instruction.op() == Op::forward)
      for (const Link& link : links_)
        if (link.to == stage && crosses(link) && !take(link.from, stage, i, true)) return;
    if (instruction.op() == Op::backward || instruction.op() == Op::input_grad)
      for (const Link& link : links_)
        if (link.from == stage && link.gradient && crosses(link) && !take(link.to, stage, i, false)) return;
    if (is_send(instruction.op())) {
      Fifo& fifo = of(stage, instruction.peer(), i, instruction.op() == Op::send_forward);
      if (fifo.sends - fifo.complete(posts_) == static_cast<std::size_t>(posts_)) return;
      ++fifo.sends;
    }
    ++reached_[rank];
    progress_ = true;
  }

  const Schedule& schedule_;
  Links links_;
  int posts_;
  std::map<std::tuple<int, int, bool>, Fifo> fifos_;
  std::vector<int> reached_;
  bool progress_ = false;  // an instruction ran or a message was taken: a SEND of another rank may go on
};

}  // namespace penstock
