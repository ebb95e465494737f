// Text as tokens: one token per distinct byte. Free of LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// A mapping of bytes to tokens 0..size()-1, ascending by byte. UTF-8 text has one token per byte. Immutable.
class Vocabulary {
 public:
  /// The vocabulary of the bytes that occur in `text`.
  static Vocabulary of(std::string_view text);
  /// The vocabulary that numbers() describes. Throws DataError for any other text.
  static Vocabulary from_numbers(std::string_view numbers);

  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }
  /// All bytes, ascending; of(bytes()) returns the same vocabulary.
  const std::string& bytes() const { return bytes_; }
  /// The bytes as numbers, "10,32,33": for files that hold UTF-8 only.
  std::string numbers() const;
  /// Throws DataError, which names the byte, for a byte without a token.
  std::vector<std::int64_t> encode(std::string_view text) const;
  /// Throws ConfigError for a number outside 0..size()-1.
  std::string decode(const std::vector<std::int64_t>& tokens) const;

 private:
  std::string bytes_;
  std::array<std::int16_t, 256> token_{};  // -1: none
};

}  // namespace penstock
