// Characters of UTF-8 text: repair, normal forms, classes, and the alphabet of byte-level vocabularies.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::text {

/// `text` as valid UTF-8: each longest run of bytes that begins a character but does not complete it, and each byte
/// that begins none, becomes U+FFFD, as Python's errors='replace' does.
std::string repaired(std::string_view text);

/// One character of valid UTF-8.
struct Character {
  char32_t code = 0;
  std::size_t bytes = 1;
};
/// `text` is valid UTF-8 and not empty.
Character first_character(std::string_view text);
Character last_character(std::string_view text);

/// The property White_Space of Unicode, \s in patterns.
bool is_white_space(char32_t code);
/// \w in patterns: letters, marks, digits and connectors.
bool is_word_character(char32_t code);

enum class NormalForm { nfc, nfd, nfkc, nfkd };
/// `text` is valid UTF-8.
std::string normalized(std::string_view text, NormalForm form);

/// The inverse of GPT-2's mapping of bytes to printable characters: the bytes that `token` stands for. None if it has a
/// character outside of this alphabet.
std::optional<std::string> bytes_of(std::string_view token);

}  // namespace penstock::text
