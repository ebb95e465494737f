#include "penstock/data/permutation.h"

#include <numeric>
#include <utility>

namespace penstock {
namespace {

/// splitmix64: a counter put through a mixer.
class Splitmix {
 public:
  explicit Splitmix(std::uint64_t state) : state_(state) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  /// Uniform in 0..bound-1: draws from the incomplete last round would favour small numbers, and are thrown away.
  std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t incomplete = (0 - bound) % bound;  // 2^64 mod bound
    std::uint64_t draw = next();
    while (draw < incomplete) draw = next();
    return draw % bound;
  }

 private:
  std::uint64_t state_;
};

}  // namespace

std::vector<std::int64_t> permutation(std::int64_t count, const ShuffleKey& key) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  // The seed is mixed before the epoch joins it: (seed 1, epoch 0) and (seed 0, epoch 1) are strangers.
  Splitmix random(Splitmix(key.seed).next() ^ key.epoch);
  for (std::size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[static_cast<std::size_t>(random.below(left))]);
  }
  return order;
}

}  // namespace penstock
