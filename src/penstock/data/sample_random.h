// Random choices that are functions of a key alone: the order of an epoch, and the transforms of a sample. Free of
// LibTorch.
//
// Runs must be repeatable on every platform, but std::shuffle differs between standard libraries and LibTorch's
// generator between versions; hence an implementation of our own.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <utility>
#include <vector>

#include "penstock/base/hash.h"

namespace penstock {

/// The key of a permutation. Equal keys give equal orders, on every machine and in every version.
struct ShuffleKey {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
};

/// A uniformly random order of 0..count-1: Fisher-Yates from the back, with splitmix64.
inline std::vector<std::int64_t> permutation(std::int64_t count, const ShuffleKey& key) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  // The seed is mixed before the epoch is added, so that (seed 1, epoch 0) and (seed 0, epoch 1) are independent.
  Splitmix random(Splitmix(key.seed).next() ^ key.epoch);
  for (std::uint64_t left = order.size(); left > 1; --left) {
    // By rejection: the 2^64 mod `left` surplus draws would favour small numbers.
    std::uint64_t draw = random.next();
    while (draw < (0 - left) % left) draw = random.next();
    std::swap(order[left - 1], order[draw % left]);
  }
  return order;
}

struct SampleKey {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::int64_t sample = 0;
};

/// A stream of random numbers (SplitMix64). Equal keys and purposes give equal streams on every machine; different ones
/// give independent streams. Not thread-safe.
class SampleRandom {
 public:
  /// `purpose` separates the draws of different transforms of one sample.
  explicit SampleRandom(const SampleKey& key, std::uint64_t purpose = 0) : random_(state_of(key, purpose)) {}

  std::uint64_t next() { return random_.next(); }

  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  /// Uniform in 0..bound-1; `bound` is at least 1. The bias of the remainder is below bound / 2^64.
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(bound));
  }

 private:
  static std::uint64_t state_of(const SampleKey& key, std::uint64_t purpose) {
    std::uint64_t state = 0x70656e73746f636bULL;
    for (const std::uint64_t part : {purpose, key.seed, key.epoch, static_cast<std::uint64_t>(key.sample)})
      state = Splitmix(state ^ part).next();
    return state;
  }

  Splitmix random_;
};

}  // namespace penstock
