// XXH3 checksums of 128 bits: they detect accidental damage of files. They are no protection against an attacker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace penstock {

struct Checksum {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend bool operator==(const Checksum&, const Checksum&) = default;
};

Checksum checksum_of(std::span<const std::byte> bytes);
Checksum checksum_of(std::string_view text);

/// 32 hexadecimal digits, as the program `xxh128sum` prints them.
std::string to_string(const Checksum& checksum);
/// The inverse of to_string(): nothing for any other text.
std::optional<Checksum> checksum_from(std::string_view digits);

/// The checksum of bytes that come in pieces.
class RunningChecksum {
 public:
  RunningChecksum();
  ~RunningChecksum();
  RunningChecksum(const RunningChecksum&) = delete;
  RunningChecksum& operator=(const RunningChecksum&) = delete;

  void add(std::span<const std::byte> bytes);
  /// Of all pieces so far.
  Checksum result() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
