// A schedule with delayed weight gradients.
#pragma once

#include <algorithm>

#include "penstock/schedule/schedule.h"

namespace penstock::test {

/// 1F1B with every B split, and each W `lag` micro-batches after its I; the remaining W's come at the end.
inline Schedule split_1f1b(const ScheduleShape& shape, int lag) {
  Schedule schedule = generate("1f1b", shape);
  schedule.name = "split 1f1b";
  for (Order& order : schedule.orders) {
    Order halves;
    for (const Instruction& instruction : order) {
      if (instruction.op() != Op::backward) {
        halves.push_back(instruction);
        continue;
      }
      const int i = instruction.micro_batch().value();
      halves.push_back(Instruction::compute(Op::input_grad, instruction.stage(), instruction.micro_batch()));
      if (i >= lag) halves.push_back(Instruction::compute(Op::weight_grad, instruction.stage(), MicroBatch(i - lag)));
    }
    for (int i = std::max(0, shape.micro_batches - lag); i < shape.micro_batches; ++i)
      halves.push_back(Instruction::compute(Op::weight_grad, order.front().stage(), MicroBatch(i)));
    order = std::move(halves);
  }
  return schedule;
}

}  // namespace penstock::test
