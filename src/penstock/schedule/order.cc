#include "penstock/schedule/order.h"

#include <algorithm>

namespace penstock {
namespace {

template <class Predicate>
bool any_instruction(const Schedule& schedule, Predicate&& predicate) {
  return std::any_of(schedule.orders.begin(), schedule.orders.end(), [&](const Order& order) {
    return std::any_of(order.begin(), order.end(),
                       [&](const Instruction& instruction) { return predicate(instruction.op()); });
  });
}

}  // namespace

std::size_t Schedule::instruction_count() const {
  std::size_t count = 0;
  for (const Order& order : orders) count += order.size();
  return count;
}

bool Schedule::is_lowered() const {
  return any_instruction(*this, [](Op op) { return !is_compute(op); });
}

bool Schedule::is_forward_only() const {
  return !any_instruction(*this, [](Op op) { return is_compute(op) && op != Op::forward; });
}

}  // namespace penstock
