// Random choices for one sample: a function of (seed, epoch, sample), whoever asks and whenever. Torch-free.
#pragma once

#include <cstdint>

namespace penstock {

/// Whose random choices.
struct SampleKey {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::int64_t sample = 0;
};

/// A stream of random numbers (splitmix64). Equal keys and purposes give equal streams, on every machine; different
/// ones are independent.
class SampleRandom {
 public:
  /// `purpose` keeps the draws of different transforms apart.
  explicit SampleRandom(const SampleKey& key, std::uint64_t purpose = 0) {
    for (const std::uint64_t part : {purpose, key.seed, key.epoch, static_cast<std::uint64_t>(key.sample)}) {
      state_ ^= part;
      state_ = next();
    }
  }

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  /// In [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  /// 0..bound-1; `bound` is at least 1. Of 2^64 numbers the remainder favours small ones by less than can be measured.
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(bound));
  }

 private:
  std::uint64_t state_ = 0x70656e73746f636bULL;
};

}  // namespace penstock
