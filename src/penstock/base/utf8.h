// Checks of text that comes from outside the program, and its form in messages. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace penstock {

/// The number of bytes at the beginning of `text` that are well-formed UTF-8 (no surrogates, no overlong forms);
/// text.size() for valid text.
std::size_t utf8_prefix(std::string_view text);

/// True if all of `text` is UTF-8 without control characters (below 0x20, and 0x7f). Such text can be written to JSON
/// files, to lists with one name per line and to terminals.
bool is_plain_text(std::string_view text);

/// `text` for a message of one line: control characters and bytes that are not UTF-8 are escaped, as in \x0a.
std::string printable(std::string_view text);

}  // namespace penstock
