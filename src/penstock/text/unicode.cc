#include "penstock/text/unicode.h"

#include <utf8proc.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock::text {
namespace {

constexpr std::string_view replacement = "\xef\xbf\xbd";

unsigned char byte_of(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

/// The bytes of `text`, which begins with an invalid sequence, that one replacement character stands for.
std::size_t invalid_length(std::string_view text) {
  const unsigned first = byte_of(text, 0);
  if (first < 0xc2 || first > 0xf4) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  // The second byte of some characters has a smaller range: no overlong forms, no surrogates, nothing above U+10FFFF.
  unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  std::size_t at = 1;
  for (; at < length && at < text.size() && byte_of(text, at) >= least && byte_of(text, at) <= most; ++at) {
    least = 0x80;
    most = 0xbf;
  }
  return at;
}

}  // namespace

std::string repaired(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const std::size_t prefix = utf8_prefix(text);
    valid.append(text.substr(0, prefix));
    text.remove_prefix(prefix);
    if (text.empty()) break;
    valid += replacement;
    text.remove_prefix(invalid_length(text));
  }
  return valid;
}

Character first_character(std::string_view text) {
  const std::uint32_t first = byte_of(text, 0);
  if (first < 0x80) return {first, 1};
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  std::uint32_t code = first & (0x7fU >> length);
  for (std::size_t at = 1; at < length; ++at) code = code << 6 | (byte_of(text, at) & 0x3fU);
  return {code, length};
}

Character last_character(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while ((byte_of(text, begin) & 0xc0) == 0x80) --begin;
  return first_character(text.substr(begin));
}

bool is_white_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0d) || code == 0x20 || code == 0x85 || code == 0xa0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f ||
         code == 0x3000;
}

bool is_word_character(char32_t code) {
  // Joiners, and the letters in circles and squares, which are symbols with the property Alphabetic.
  if (code == 0x200c || code == 0x200d || (code >= 0x24b6 && code <= 0x24e9) || (code >= 0x1f130 && code <= 0x1f149) ||
      (code >= 0x1f150 && code <= 0x1f169) || (code >= 0x1f170 && code <= 0x1f189))
    return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
  }
}

std::string normalized(std::string_view text, NormalForm form) {
  const bool is_composed = form == NormalForm::nfc || form == NormalForm::nfkc;
  const bool is_compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (is_composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) | (is_compatible ? UTF8PROC_COMPAT : 0));
  utf8proc_uint8_t* result = nullptr;
  const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                   static_cast<utf8proc_ssize_t>(text.size()), &result, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  require<Failure>(length >= 0, "a text of ", text.size(), " bytes cannot be normalised: ", utf8proc_errmsg(length));
  return {reinterpret_cast<const char*>(result), static_cast<std::size_t>(length)};
}

namespace {

constexpr std::size_t alphabet_end = 256 + 68;

/// By character: the byte, or -1.
constexpr std::array<int, alphabet_end> byte_alphabet() {
  std::array<int, alphabet_end> bytes{};
  for (int& byte : bytes) byte = -1;
  std::size_t shifted = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_itself = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
    bytes[is_itself ? static_cast<std::size_t>(byte) : shifted++] = byte;
  }
  return bytes;
}

}  // namespace

std::optional<std::string> bytes_of(std::string_view token) {
  static constexpr std::array<int, alphabet_end> alphabet = byte_alphabet();
  std::string bytes;
  while (!token.empty()) {
    const Character next = first_character(token);
    if (next.code >= alphabet_end || alphabet[next.code] < 0) return std::nullopt;
    bytes += static_cast<char>(alphabet[next.code]);
    token.remove_prefix(next.bytes);
  }
  return bytes;
}

}  // namespace penstock::text
