// Instructions from text, for the readers of this module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "penstock/schedule/instruction.h"

namespace penstock {

/// An instruction, or what is wrong with the text and at which offset.
struct ParsedInstruction {
  std::optional<Instruction> instruction;
  std::string error;
  std::size_t at = 0;
};

/// Strictly: all of `text` must be one instruction, in the one way in which to_string() writes it.
ParsedInstruction try_parse_instruction(std::string_view text);

/// A canonical decimal number at the start of `text`: no sign, no leading zero, at most `limit`.
struct ParsedNumber {
  std::optional<std::int32_t> value;
  std::size_t length = 0;
  std::string error;
};

ParsedNumber parse_number(std::string_view text, std::int32_t limit);

/// `text` for an error message: in quotes, shortened, control characters replaced.
std::string quoted(std::string_view text);

/// The reason why `word`, well formed, does not belong to a schedule of this many stages and micro-batches.
std::optional<std::string> out_of_range(const Instruction& instruction, std::size_t stages, std::int32_t micro_batches);

}  // namespace penstock
