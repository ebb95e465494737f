// Hashes of texts and numbers that are the same in every build and on every machine, unlike std::hash, and random
// names.
// Not for cryptography.
//   FNV-1a       Fowler, Noll and Vo: text_hash()
//   SplitMix64   a counter whose values are hashed (Steele, Lea and Flood, "Fast splittable pseudorandom number
//                generators", OOPSLA 2014)
#pragma once

#include <cstdint>
#include <random>
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

/// The hash with the bytes of a number more, the lowest first.
constexpr std::uint64_t number_hash(std::uint64_t number, std::uint64_t begin) {
  for (int shift = 0; shift < 64; shift += 8) begin = fnv_mixed(begin, number >> shift & 0xff);
  return begin;
}

/// The 16 hexadecimal digits of a hash.
inline std::string hash_digits(std::uint64_t hash) {
  std::string digits(16, '0');
  for (auto digit = digits.rbegin(); hash != 0; hash >>= 4) *digit++ = "0123456789abcdef"[hash & 15];
  return digits;
}

/// The increment of the counter: odd, and near 2^64 divided by the golden ratio.
inline constexpr std::uint64_t splitmix_increment = 0x9e3779b97f4a7c15ULL;

/// The hash: a bijection of 64-bit numbers that makes all bits of neighbouring numbers differ at random.
constexpr std::uint64_t splitmix_mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// The sequence of numbers that begins at the counter value `state`. Not thread-safe.
class Splitmix {
 public:
  explicit constexpr Splitmix(std::uint64_t state) : state_(state) {}

  constexpr std::uint64_t next() { return splitmix_mixed(state_ += splitmix_increment); }

 private:
  std::uint64_t state_;
};

/// 16 random hexadecimal digits, for a name that no other process on any host chooses at the same time.
inline std::string random_digits() {
  std::random_device source;
  return hash_digits(std::uint64_t{source()} << 32 | source());
}

}  // namespace penstock
