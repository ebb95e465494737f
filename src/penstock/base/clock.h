// The clock of the library: nanoseconds of the host's monotonic clock; and medians of measured times. All processes of
// one host have the same clock, so that their times can be compared; the clocks of two hosts start at their boots
// (world/gather.h).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock {

/// The time of the monotonic clock in nanoseconds. Costs about 20 ns.
inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Nanoseconds in other units.
constexpr double to_ms(std::int64_t ns) { return static_cast<double>(ns) / 1e6; }
constexpr double to_s(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

/// The time since `begin_ns`, a result of now_ns().
inline double ms_since(std::int64_t begin_ns) { return to_ms(now_ns() - begin_ns); }
inline double s_since(std::int64_t begin_ns) { return to_s(now_ns() - begin_ns); }

/// The same time for functions of the standard library that wait until a time.
constexpr std::chrono::steady_clock::time_point time_point_of(std::int64_t ns) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(ns));
}

/// Seconds since 1970, for files that record when they were written. Jumps where the host's time is set.
inline double calendar_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The median of `values`; the mean of the two middle ones when their number is even; 0 when there are none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

/// Splits `values`, in order, into `steps` steps of equal size and returns the median of the steps' means. A delay that
/// occurs a few times in every step thus counts, as it does in the length of the step; a single slow step does not.
inline double median_of_steps(const std::vector<double>& values, std::size_t steps) {
  std::vector<double> means;
  for (std::size_t step = 0; step < steps; ++step) {
    const std::size_t begin = values.size() * step / steps, end = values.size() * (step + 1) / steps;
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += values[i];
    if (end > begin) means.push_back(sum / static_cast<double>(end - begin));
  }
  return median(std::move(means));
}

}  // namespace penstock
