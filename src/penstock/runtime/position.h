// The position that a rank reports to its peers before every instruction. Torch-free.
#pragma once

#include <cstring>

#include "penstock/schedule/instruction.h"
#include "penstock/transport/tag.h"

namespace penstock {

/// The position at `instruction`, such as "0F5". Allocates no memory.
inline Position position_of(const Instruction& instruction) noexcept {
  const InstructionText text = instruction_text(instruction);
  Position position;
  static_assert(sizeof(position.instruction) == sizeof(text.letters));
  std::memcpy(position.instruction, text.letters.data(), sizeof(position.instruction));
  return position;
}

}  // namespace penstock
