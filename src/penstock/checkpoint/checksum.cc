#include "penstock/checkpoint/checksum.h"

#include <array>
#include <charconv>

// The functions are compiled into this file: programs that use Penstock need no libxxhash.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

constexpr std::size_t half_digits = 16;

Checksum from_library(const XXH128_hash_t& hash) { return {hash.high64, hash.low64}; }

std::string sixteen_digits(std::uint64_t number) {
  std::array<char, half_digits> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, 16).ptr;
  const auto used = static_cast<std::size_t>(end - digits.data());
  return std::string(half_digits - used, '0') + std::string(digits.data(), used);
}

}  // namespace

Checksum checksum_of(std::span<const std::byte> bytes) {
  return from_library(XXH3_128bits(bytes.data(), bytes.size()));
}

Checksum checksum_of(std::string_view text) { return checksum_of(std::as_bytes(std::span(text))); }

std::string to_string(const Checksum& checksum) { return sixteen_digits(checksum.high) + sixteen_digits(checksum.low); }

std::optional<Checksum> checksum_from(std::string_view digits) {
  constexpr std::string_view known = "0123456789abcdef";
  if (digits.size() != 2 * half_digits || digits.find_first_not_of(known) != std::string_view::npos)
    return std::nullopt;
  Checksum checksum;
  std::from_chars(digits.data(), digits.data() + half_digits, checksum.high, 16);
  std::from_chars(digits.data() + half_digits, digits.data() + digits.size(), checksum.low, 16);
  return checksum;
}

struct RunningChecksum::State {
  XXH3_state_t library;
};

RunningChecksum::RunningChecksum() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->library);
  XXH3_128bits_reset(&state_->library);
}

RunningChecksum::~RunningChecksum() = default;

void RunningChecksum::add(std::span<const std::byte> bytes) {
  const XXH_errorcode code = XXH3_128bits_update(&state_->library, bytes.data(), bytes.size());
  require<InternalError>(code == XXH_OK, "a checksum refuses ", bytes.size(), " bytes");
}

Checksum RunningChecksum::result() const { return from_library(XXH3_128bits_digest(&state_->library)); }

}  // namespace penstock
