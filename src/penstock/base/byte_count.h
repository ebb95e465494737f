// Numbers of bytes as people write them: 512MiB, 2GiB, 3e9B.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

/// Of parse_bytes(), for messages.
inline constexpr std::string_view byte_unit_names = "B, kB, MB, GB, TB, KiB, MiB, GiB and TiB";

/// The number of bytes that `text` says, rounded down: a number that is not negative, directly followed by a unit: B,
/// kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024). None for any other text, and for 2^63 bytes
/// or more.
std::optional<std::int64_t> parse_bytes(std::string_view text);

/// "2GiB": the number in the largest power of 1024 of which it is a multiple. parse_bytes(bytes_text(x)) == x.
std::string bytes_text(std::int64_t bytes);

}  // namespace penstock
