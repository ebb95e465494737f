// One size of a value's shape.
#pragma once

#include <concepts>
#include <cstdint>
#include <vector>

namespace penstock {

/// A number; or, of a symbol, a multiple of the number of samples, which differs between micro-batches and has no value
/// while a network is traced. Such a size can be multiplied, divided and given to view(), reshape() and expand(): write
/// `auto n = x.size(0)`. As a number it throws ScheduleError.
class Size {
 public:
  template <std::integral Number>
  Size(Number number) : factor_(static_cast<std::int64_t>(number)) {}  // NOLINT: numbers are sizes
  /// `factor` times the number of samples.
  static Size of_samples(std::int64_t factor);

  operator std::int64_t() const;  // NOLINT: sizes are used as numbers
  bool is_number() const { return !is_of_samples_; }
  /// The number, or what the number of samples is multiplied with.
  std::int64_t factor() const { return factor_; }

  friend Size operator*(const Size& a, const Size& b);
  /// Throws ScheduleError where it does not go evenly into a multiple of the number of samples.
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
