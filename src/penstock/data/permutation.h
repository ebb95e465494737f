// The order of samples in an epoch: a function of (count, seed, epoch) alone. Free of LibTorch.
//
// Runs must be repeatable on every platform, but std::shuffle differs between standard libraries and LibTorch's
// generator between versions; hence an implementation of our own.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock {

/// The key of a permutation. Equal keys give equal orders, on every machine and in every version.
struct ShuffleKey {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
};

/// A uniformly random order of 0..count-1: Fisher-Yates from the back, with splitmix64.
std::vector<std::int64_t> permutation(std::int64_t count, const ShuffleKey& key);

}  // namespace penstock
