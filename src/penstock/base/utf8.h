// Text that comes from outside: whether it is UTF-8, and how it is shown in a message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace penstock {

/// The number of bytes at the beginning of `text` that are well-formed UTF-8 (no surrogates, no overlong forms):
/// text.size() where all of it is.
std::size_t utf8_prefix(std::string_view text);

/// Whether all of `text` is UTF-8 without control characters (below 0x20, and 0x7f): what JSON files, lists with a line
/// for each name and terminals can carry.
bool is_plain_text(std::string_view text);

/// `text` for a message of one line: control characters and bytes that are not UTF-8 become \x0a and the like.
std::string printable(std::string_view text);

}  // namespace penstock
