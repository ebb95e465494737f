#include "penstock/checkpoint/spoiled_tensor.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace penstock {
namespace {

enum class Refused { nan, infinite_or_nan };

/// Without its sign, a NaN as a number is larger than infinity, which has all bits of the exponent and no others. The
/// loop has no branch, so that compilers vectorise it.
template <class Bits>
bool has(Refused refused, std::span<const std::byte> bytes, Bits infinity) {
  constexpr Bits without_sign = static_cast<Bits>(~Bits{0}) >> 1;
  constexpr std::size_t block = 4096;
  const Bits largest = refused == Refused::nan ? infinity : static_cast<Bits>(infinity - 1);
  for (std::size_t at = 0; at + sizeof(Bits) <= bytes.size();) {
    const std::size_t end = std::min(bytes.size() / sizeof(Bits) * sizeof(Bits), at + block * sizeof(Bits));
    Bits found = 0;
    for (; at < end; at += sizeof(Bits)) {
      Bits value;
      std::memcpy(&value, bytes.data() + at, sizeof(Bits));
      found = static_cast<Bits>(found | static_cast<Bits>((value & without_sign) > largest));
    }
    if (found) return true;
  }
  return false;
}

bool has(Refused refused, TensorType type, std::span<const std::byte> bytes) {
  switch (type) {
    case TensorType::f32: return has<std::uint32_t>(refused, bytes, 0x7f800000);
    case TensorType::f64: return has<std::uint64_t>(refused, bytes, 0x7ff0000000000000);
    case TensorType::f16: return has<std::uint16_t>(refused, bytes, 0x7c00);
    case TensorType::bf16: return has<std::uint16_t>(refused, bytes, 0x7f80);
    default: return false;
  }
}

}  // namespace

std::string_view spoiled_values(TensorType type, std::span<const std::byte> values, bool is_trained) {
  if (!has(is_trained ? Refused::infinite_or_nan : Refused::nan, type, values)) return "";
  return has(Refused::nan, type, values) ? "not a number" : "infinite";
}

}  // namespace penstock
