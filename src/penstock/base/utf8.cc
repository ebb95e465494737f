#include "penstock/base/utf8.h"

#include <algorithm>
#include <cstdint>

namespace penstock {
namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

/// The number of bytes of the first character of `text`, or 0 if it is malformed. `text` is not empty.
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 && first < 0xf8 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first >= 0xf8 || text.size() < length) return 0;
  std::uint32_t code = first & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  return code < least[length] || code > 0x10ffff || is_surrogate ? 0 : length;
}

}  // namespace

std::size_t utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t length = character_length(text.substr(at));
    if (length == 0) break;
    at += length;
  }
  return at;
}

bool is_plain_text(std::string_view text) {
  return utf8_prefix(text) == text.size() && std::none_of(text.begin(), text.end(), is_control);
}

std::string printable(std::string_view text) {
  constexpr const char* digits = "0123456789abcdef";
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_length(text.substr(at));
    if (length > 1 || (length == 1 && !is_control(text[at]))) {
      shown += text.substr(at, length);
      at += length;
      continue;
    }
    const auto byte = static_cast<unsigned char>(text[at++]);
    shown += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
  }
  return shown;
}

}  // namespace penstock
