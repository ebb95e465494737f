// Where a rank is, for its peers to know: told before every instruction. Torch-free.
#pragma once

#include <cstring>

#include "penstock/schedule/word_text.h"
#include "penstock/transport/tag.h"

namespace penstock {

/// "0F5". Allocates nothing.
inline Position position_of(const Instruction& instruction) noexcept {
  const WordText text = word_text(instruction);
  Position position;
  static_assert(sizeof(position.word) == sizeof(text.letters));
  std::memcpy(position.word, text.letters.data(), sizeof(position.word));
  return position;
}

}  // namespace penstock
