#include "penstock/base/byte_count.h"

#include <charconv>
#include <cmath>

#include "penstock/base/error.h"

namespace penstock {
namespace {

struct ByteUnit {
  std::string_view name;
  std::int64_t bytes;
};

// From small to large; those of 1024 come last, because bytes_text() takes the last one that divides a number.
constexpr ByteUnit byte_units[] = {
    {"kB", 1000},     {"MB", 1'000'000}, {"GB", 1'000'000'000}, {"TB", 1'000'000'000'000},     {"B", 1},
    {"KiB", 1 << 10}, {"MiB", 1 << 20},  {"GiB", 1 << 30},      {"TiB", std::int64_t{1} << 40}};
constexpr std::size_t first_shown = 4;  // B

}  // namespace

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  double number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || !(number >= 0) || std::signbit(number)) return std::nullopt;
  const std::string_view name = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const ByteUnit& unit : byte_units) {
    if (unit.name != name) continue;
    // A whole number is read exactly: a double has 53 bits.
    std::int64_t whole = 0;
    const auto [whole_end, whole_problem] = std::from_chars(text.data(), end, whole);
    if (whole_problem == std::errc() && whole_end == end) {
      std::int64_t bytes = 0;
      return __builtin_mul_overflow(whole, unit.bytes, &bytes) ? std::nullopt : std::optional(bytes);
    }
    const double bytes = std::floor(number * static_cast<double>(unit.bytes));
    if (!(bytes < 0x1p63)) return std::nullopt;
    return static_cast<std::int64_t>(bytes);
  }
  return std::nullopt;
}

std::string bytes_text(std::int64_t bytes) {
  const ByteUnit* shown = &byte_units[first_shown];
  for (const ByteUnit& unit : byte_units)
    if (&unit > shown && bytes != 0 && bytes % unit.bytes == 0) shown = &unit;
  return say(bytes / shown->bytes, shown->name);
}

}  // namespace penstock
