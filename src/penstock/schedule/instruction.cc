#include "penstock/schedule/instruction.h"

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

std::string to_string(const Instruction& instruction) {
  const Op op = instruction.op();
  std::string word = std::to_string(instruction.stage().value());
  word += to_string(op);
  if (is_step_wide(op)) return word;
  word += std::to_string(instruction.first().value());
  if (instruction.is_fused()) {
    word += '-';
    word += std::to_string(instruction.last().value());
  }
  if ((is_send(op) || is_receive(op)) && instruction.peer() != neighbour(op, instruction.stage())) {
    word += is_send(op) ? '>' : '<';
    word += std::to_string(instruction.peer().value());
  }
  return word;
}

}  // namespace penstock
