// SplitMix64: a counter whose values are hashed (Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", OOPSLA 2014). The numbers are the same on every machine. Not for cryptography.
#pragma once

#include <cstdint>

namespace penstock {

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

}  // namespace penstock
