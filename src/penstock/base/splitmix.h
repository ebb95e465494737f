// SplitMix64: a counter put through a mixer (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
// OOPSLA 2014). The same numbers on every machine; for choices that follow from a key, not for secrets.
#pragma once

#include <cstdint>

namespace penstock {

/// What the counter of SplitMix64 grows by: odd, and near 2^64 over the golden ratio.
inline constexpr std::uint64_t splitmix_increment = 0x9e3779b97f4a7c15ULL;

/// The mixer: neighbouring numbers become unlike each other in all bits, and different ones stay different.
constexpr std::uint64_t splitmix_mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// The stream that begins at `state`.
class Splitmix {
 public:
  explicit constexpr Splitmix(std::uint64_t state) : state_(state) {}

  constexpr std::uint64_t next() { return splitmix_mixed(state_ += splitmix_increment); }

 private:
  std::uint64_t state_;
};

}  // namespace penstock
