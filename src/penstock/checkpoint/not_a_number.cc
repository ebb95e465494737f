#include "penstock/checkpoint/not_a_number.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace penstock {
namespace {

/// Without its sign, a NaN as a number is larger than infinity, which has all bits of the exponent and no others. The
/// loop has no branch, so that compilers vectorise it.
template <class Bits>
bool has_nan(std::span<const std::byte> bytes, Bits infinity) {
  constexpr Bits without_sign = static_cast<Bits>(~Bits{0}) >> 1;
  constexpr std::size_t block = 4096;
  for (std::size_t at = 0; at + sizeof(Bits) <= bytes.size();) {
    const std::size_t end = std::min(bytes.size() / sizeof(Bits) * sizeof(Bits), at + block * sizeof(Bits));
    Bits found = 0;
    for (; at < end; at += sizeof(Bits)) {
      Bits value;
      std::memcpy(&value, bytes.data() + at, sizeof(Bits));
      found = static_cast<Bits>(found | static_cast<Bits>((value & without_sign) > infinity));
    }
    if (found) return true;
  }
  return false;
}

bool has_nan(const TensorBytes& tensor) {
  switch (tensor.type) {
    case TensorType::f32: return has_nan<std::uint32_t>(tensor.bytes, 0x7f800000);
    case TensorType::f64: return has_nan<std::uint64_t>(tensor.bytes, 0x7ff0000000000000);
    case TensorType::f16: return has_nan<std::uint16_t>(tensor.bytes, 0x7c00);
    case TensorType::bf16: return has_nan<std::uint16_t>(tensor.bytes, 0x7f80);
    default: return false;
  }
}

}  // namespace

std::string tensor_that_is_no_number(const RankTensors& tensors) {
  for (const auto* list : {&tensors.model, &tensors.optimizer})
    for (const TensorBytes& tensor : *list)
      if (has_nan(tensor)) return tensor.name;
  return "";
}

}  // namespace penstock
