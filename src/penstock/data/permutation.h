// The order of samples in an epoch: a function of (count, seed, epoch) and nothing else. Torch-free.
//
// Our own, because the order is part of what makes a run repeatable: std::shuffle may differ between standard
// libraries, and LibTorch's generator between versions.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock {

/// Which shuffle. Equal pairs give equal orders, on every machine and in every version.
struct ShuffleKey {
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
};

/// 0..count-1 in an order drawn uniformly: Fisher-Yates from the back, with splitmix64.
std::vector<std::int64_t> permutation(std::int64_t count, const ShuffleKey& key);

}  // namespace penstock
