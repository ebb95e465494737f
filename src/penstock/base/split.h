// Splits n samples into parts. Replicas' shares of a batch and micro-batches follow the same rule.
#pragma once

#include <cstdint>

namespace penstock {

/// Rows begin..end-1.
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  constexpr std::int64_t size() const { return end - begin; }
  friend constexpr bool operator==(const RowRange&, const RowRange&) = default;
};

/// Part `index` of `of` parts, 0 <= index < of.
struct Part {
  std::int64_t index = 0;
  std::int64_t of = 1;
};

/// The rows of part `part.index` of n rows. Sizes differ by at most one, larger parts come first; when there are more
/// parts than rows, the last parts are empty. split(30, {.index = i, .of = 4}) gives 8, 8, 7 and 7 rows.
constexpr RowRange split(std::int64_t n, Part part) {
  const std::int64_t small = n / part.of;
  const std::int64_t larger = n % part.of;
  const auto begin_of = [&](std::int64_t i) { return i * small + (i < larger ? i : larger); };
  return {begin_of(part.index), begin_of(part.index + 1)};
}

}  // namespace penstock
