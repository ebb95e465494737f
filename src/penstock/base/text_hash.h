// FNV-1a (Fowler, Noll and Vo): a hash of texts that is the same in every build and on every machine, unlike std::hash.
// Not for cryptography.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

inline constexpr std::uint64_t fnv_begin = 0xcbf29ce484222325ULL;

/// The hash with one byte more.
constexpr std::uint64_t fnv_mixed(std::uint64_t hash, std::uint64_t byte) { return (hash ^ byte) * 0x100000001b3ULL; }

constexpr std::uint64_t text_hash(std::string_view text, std::uint64_t begin = fnv_begin) {
  std::uint64_t hash = begin;
  for (const char c : text) hash = fnv_mixed(hash, static_cast<unsigned char>(c));
  return hash;
}

/// The 16 hexadecimal digits of a hash.
inline std::string hash_digits(std::uint64_t hash) {
  std::string digits(16, '0');
  for (auto digit = digits.rbegin(); hash != 0; hash >>= 4) *digit++ = "0123456789abcdef"[hash & 15];
  return digits;
}

}  // namespace penstock
