#include "penstock/data/sample_random.h"

#include <numeric>
#include <utility>

#include "penstock/base/hash.h"

namespace penstock {
namespace {

/// Uniform in 0..bound-1, by rejection: the 2^64 mod `bound` surplus draws would favour small numbers.
std::uint64_t below(Splitmix& random, std::uint64_t bound) {
  const std::uint64_t incomplete = (0 - bound) % bound;  // 2^64 mod bound
  std::uint64_t draw = random.next();
  while (draw < incomplete) draw = random.next();
  return draw % bound;
}

}  // namespace

std::vector<std::int64_t> permutation(std::int64_t count, const ShuffleKey& key) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  // The seed is mixed before the epoch is added, so that (seed 1, epoch 0) and (seed 0, epoch 1) are independent.
  Splitmix random(Splitmix(key.seed).next() ^ key.epoch);
  for (std::size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[static_cast<std::size_t>(below(random, left))]);
  }
  return order;
}

}  // namespace penstock
