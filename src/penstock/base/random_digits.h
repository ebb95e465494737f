// Names that no other process, on any host, chooses at the same time.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "penstock/base/text_hash.h"

namespace penstock {

/// 16 random hexadecimal digits.
inline std::string random_digits() {
  std::random_device source;
  return hash_digits(std::uint64_t{source()} << 32 | source());
}

}  // namespace penstock
