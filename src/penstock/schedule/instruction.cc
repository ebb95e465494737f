#include "penstock/schedule/instruction.h"

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
    if ((is_send(op) || is_receive(op)) && instruction.peer() != neighbour(op, instruction.stage())) {
      *at++ = is_send(op) ? '>' : '<';
      add_number(instruction.peer().value());
    }
  }
  text.length = static_cast<std::size_t>(at - text.letters.data());
  return text;
}

std::string to_string(const Instruction& instruction) { return std::string(instruction_text(instruction).view()); }

}  // namespace penstock
