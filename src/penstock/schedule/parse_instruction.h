// Parses instructions, for the readers of this module. Inside this module only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "penstock/schedule/instruction.h"

namespace penstock {

/// An instruction, or the error in the text and its offset.
struct ParsedInstruction {
  std::optional<Instruction> instruction;
  std::string error;
  std::size_t at = 0;
};

/// All of `text` must be one instruction, exactly as to_string() writes it. Does not throw.
ParsedInstruction try_parse_instruction(std::string_view text);

struct ParsedNumber {
  std::optional<std::int32_t> value;
  std::size_t length = 0;  // in characters
  std::string error;
};

/// For parse_number(): any number that the type holds.
inline constexpr std::int32_t no_limit = std::numeric_limits<std::int32_t>::max();

/// Parses the decimal number at the start of `text`: no sign, no leading zero, at most `limit`. Does not throw.
ParsedNumber parse_number(std::string_view text, std::int32_t limit);

/// `text` for an error message: in quotes, shortened, control characters replaced.
std::string quoted(std::string_view text);

/// The reason why a well-formed instruction is out of range in a schedule with so many stages and micro-batches; none
/// if it is in range.
std::optional<std::string> out_of_range(const Instruction& instruction, std::size_t stages, std::int32_t micro_batches);

}  // namespace penstock
