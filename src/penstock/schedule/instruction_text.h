// An instruction as text without allocation: for what happens at every instruction of a step.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "penstock/schedule/instruction.h"

namespace penstock {

/// The letters of one instruction, ended by zeros.
struct InstructionText {
  std::array<char, 32> letters{};  // the longest, 65534SEND_F2147483647>65535, has 27
  std::size_t length = 0;

  std::string_view view() const { return {letters.data(), length}; }
};

/// What to_string(instruction) says.
InstructionText instruction_text(const Instruction& instruction) noexcept;

}  // namespace penstock
