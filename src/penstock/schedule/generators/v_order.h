// Builds the order of one rank in a V placement, for generators that define it by phases. Inside this module only.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "penstock/schedule/generators/placement.h"

namespace penstock {

/// Appends instructions to the order of one rank. On each leg, each kind of instruction takes the micro-batches in
/// ascending order. Instructions of the micro-batches m, m+1, ... are counted, but not appended. Phases that need many
/// micro-batches therefore also give an order for few: a valid schedule stays valid when micro-batches are removed, and
/// its activations do not grow.
class VOrder {
 public:
  VOrder(const ScheduleShape& shape, Rank rank) : shape_(shape), rank_(rank) {}

  void forward(Leg leg) { put(next_forward(leg)); }
  void backward(Leg leg) { put(next_backward(leg)); }
  void input_grad(Leg leg) { put(penstock::input_grad(stage(leg), next(input_grads_, leg))); }
  void weight_grad(Leg leg) { put(penstock::weight_grad(stage(leg), next(weight_grads_, leg))); }
  /// Both as one overlap pair.
  void forward_backward(Leg forward_leg, Leg backward_leg) {
    const Instruction f = next_forward(forward_leg);
    const Instruction b = next_backward(backward_leg);
    put(is_in_step(b) ? f.overlapping_next() : f);
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

  bool is_in_step(const Instruction& instruction) const {
    return instruction.micro_batch().value() < shape_.micro_batches;
  }
  void put(const Instruction& instruction) {
    if (is_in_step(instruction)) order_.push_back(instruction);
  }

  ScheduleShape shape_;
  Rank rank_;
  Order order_;
  PerLeg forwards_, input_grads_, weight_grads_;  // the next micro-batch of each
};

}  // namespace penstock
