// The clock of the library: nanoseconds of the host's monotonic clock. All processes of one host have the same clock,
// so that their times can be compared; the clocks of two hosts begin at their boots (world/host_clock.h).
#pragma once

#include <chrono>
#include <cstdint>

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

}  // namespace penstock
