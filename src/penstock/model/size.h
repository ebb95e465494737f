// The size of one dimension of a Value.
#pragma once

#include <concepts>
#include <cstdint>
#include <vector>

namespace penstock {

/// Either a number or, for a symbolic value, a multiple of the number of samples. That number differs between
/// micro-batches and is unknown while a network is traced, so such a size cannot convert to a number: the conversion
/// throws ScheduleError. It can be multiplied, divided and passed to view(), reshape() and expand(): write
/// `auto n = x.size(0)`.
class Size {
 public:
  template <std::integral Number>
  Size(Number number) : factor_(static_cast<std::int64_t>(number)) {}  // NOLINT: numbers are sizes
  /// `factor` times the number of samples.
  static Size of_samples(std::int64_t factor);

  operator std::int64_t() const;  // NOLINT: sizes are used as numbers
  bool is_number() const { return !is_of_samples_; }
  /// The number, or the factor of the number of samples.
  std::int64_t factor() const { return factor_; }

  friend Size operator*(const Size& a, const Size& b);
  /// Throws ScheduleError if a multiple of the number of samples is not divisible by `b`.
  friend Size operator/(const Size& a, const Size& b);
  template <std::integral Number>
  friend Size operator*(const Size& a, Number b) {
    return a * Size(b);
  }
  template <std::integral Number>
  friend Size operator*(Number a, const Size& b) {
    return Size(a) * b;
  }
  template <std::integral Number>
  friend Size operator/(const Size& a, Number b) {
    return a / Size(b);
  }

 private:
  std::int64_t factor_ = 0;
  bool is_of_samples_ = false;
};

using Sizes = std::vector<Size>;

}  // namespace penstock
