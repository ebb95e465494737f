#include "penstock/schedule/instruction.h"

#include <algorithm>
#include <charconv>

namespace penstock {

const char* to_string(Op op) {
  switch (op) {
    case Op::forward: return "F";
    case Op::backward: return "B";
    case Op::input_grad: return "I";
    case Op::weight_grad: return "W";
    case Op::send_forward: return "SEND_F";
    case Op::recv_forward: return "RECV_F";
    case Op::send_backward: return "SEND_B";
    case Op::recv_backward: return "RECV_B";
    case Op::reduce: return "REDUCE";
    case Op::norm: return "NORM";
    case Op::step: return "STEP";
  }
  return "?";
}

InstructionText instruction_text(const Instruction& instruction) noexcept {
  InstructionText text;
  char* at = text.letters.data();
  const auto add_number = [&](std::int32_t number) {
    at = std::to_chars(at, text.letters.data() + text.letters.size(), number).ptr;
  };
  const Op op = instruction.op();
  add_number(instruction.stage().value());
  for (const char* letter = to_string(op); *letter != '\0'; ++letter) *at++ = *letter;
  if (!is_step_wide(op)) {
    add_number(instruction.first().value());
    if (instruction.is_fused()) {
      *at++ = '-';
      add_number(instruction.last().value());
    }
    if (is_message(op) && instruction.peer() != neighbour(op, instruction.stage())) {
      *at++ = is_send(op) ? '>' : '<';
      add_number(instruction.peer().value());
    }
  }
  text.length = static_cast<std::size_t>(at - text.letters.data());
  return text;
}

std::string to_string(const Instruction& instruction) { return std::string(instruction_text(instruction).view()); }

namespace {

template <class Predicate>
bool any_op(const Schedule& schedule, Predicate&& predicate) {
  return std::any_of(schedule.orders.begin(), schedule.orders.end(), [&](const Order& order) {
    return std::any_of(order.begin(), order.end(), [&](const Instruction& one) { return predicate(one.op()); });
  });
}

}  // namespace

std::vector<int> Schedule::chunks() const {
  std::vector<int> chunks(orders.size(), 0);
  for (const Rank rank : rank_of_stage)
    if (rank.index() < chunks.size()) ++chunks[rank.index()];
  return chunks;
}

std::size_t Schedule::instruction_count() const {
  std::size_t count = 0;
  for (const Order& order : orders) count += order.size();
  return count;
}

bool Schedule::has(Op op) const {
  return any_op(*this, [op](Op one) { return one == op; });
}

bool Schedule::is_lowered() const {
  return any_op(*this, [](Op op) { return !is_compute(op); });
}

bool Schedule::is_forward_only() const {
  return !any_op(*this, [](Op op) { return is_compute(op) && op != Op::forward; });
}

}  // namespace penstock
