// One rank's instructions on a V placement, put down phase by phase by generators that count them. Inside this module only.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "penstock/schedule/generators/placement.h"

namespace penstock {

/// Appends instructions to one rank's order; on each leg, each kind of instruction takes the micro-batches in ascending order.
/// The instructions of micro-batches m, m+1, ... are counted and left out: phases that need many micro-batches to get going
/// so give an order for a few as well. What is left of a working schedule works, and holds no more.
class VOrder {
 public:
  VOrder(const ScheduleShape& shape, Rank rank) : shape_(shape), rank_(rank) {}

  void forward(Leg leg) { put(next_forward(leg)); }
  void backward(Leg leg) { put(next_backward(leg)); }
  void input_grad(Leg leg) { put(penstock::input_grad(stage(leg), next(input_grads_, leg))); }
  void weight_grad(Leg leg) { put(penstock::weight_grad(stage(leg), next(weight_grads_, leg))); }
  /// The two as one overlapped pair.
  void forward_backward(Leg forward_leg, Leg backward_leg) {
    const Instruction f = next_forward(forward_leg);
    const Instruction b = next_backward(backward_leg);
    put(is_kept(b) ? f.overlapping_next() : f);
    put(b);
  }

  Order take() { return std::move(order_); }

 private:
  using PerLeg = std::array<MicroBatch, 2>;

  StageId stage(Leg leg) const { return stage_in_v(shape_, rank_, leg); }
  static MicroBatch next(PerLeg& counter, Leg leg) {
    MicroBatch& i = counter[static_cast<std::size_t>(leg)];
    return std::exchange(i, i.next());
  }
  Instruction next_forward(Leg leg) { return penstock::forward(stage(leg), next(forwards_, leg)); }
  Instruction next_backward(Leg leg) {
    next(weight_grads_, leg);
    return penstock::backward(stage(leg), next(input_grads_, leg));
  }

  bool is_kept(const Instruction& instruction) const {
    return instruction.micro_batch().value() < shape_.micro_batches;
  }
  void put(const Instruction& instruction) {
    if (is_kept(instruction)) order_.push_back(instruction);
  }

  ScheduleShape shape_;
  Rank rank_;
  Order order_;
  PerLeg forwards_, input_grads_, weight_grads_;  // the next of each
};

}  // namespace penstock
