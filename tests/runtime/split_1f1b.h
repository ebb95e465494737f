// A schedule whose weight gradients come late, by as much as one likes.
#pragma once

#include <algorithm>

#include "penstock/schedule/schedule.h"

namespace penstock::test {

/// 1F1B with every B split, each W as many micro-batches behind its I as `lag` says; the rest at the end.
inline Schedule split_1f1b(const ScheduleShape& shape, int lag) {
  Schedule schedule = generate("1f1b", shape);
  schedule.name = "split 1f1b";
  for (Order& order : schedule.orders) {
    Order halves;
    for (const Instruction& word : order) {
      if (word.op() != Op::backward) {
        halves.push_back(word);
        continue;
      }
      const int i = word.micro_batch().value();
      halves.push_back(Instruction::compute(Op::input_grad, word.stage(), word.micro_batch()));
      if (i >= lag) halves.push_back(Instruction::compute(Op::weight_grad, word.stage(), MicroBatch(i - lag)));
    }
    for (int i = std::max(0, shape.micro_batches - lag); i < shape.micro_batches; ++i)
      halves.push_back(Instruction::compute(Op::weight_grad, order.front().stage(), MicroBatch(i)));
    order = std::move(halves);
  }
  return schedule;
}

}  // namespace penstock::test
