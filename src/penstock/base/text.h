// Text from outside the program, and text for people: UTF-8, whole files, misspelt names, numbers of bytes, tables for
// a terminal, and text without secrets. Pure functions but for read_text() and the environment's folders.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "penstock/base/error.h"

namespace penstock {

/// The number of bytes at the beginning of `text` that are well-formed UTF-8 (no surrogates, no overlong forms);
/// text.size() for valid text.
std::size_t utf8_prefix(std::string_view text);

/// True if all of `text` is UTF-8 without control characters (below 0x20, and 0x7f). Such text can be written to JSON
/// files, to lists with one name per line and to terminals.
bool is_plain_text(std::string_view text);

/// `text` for a message of one line: control characters and bytes that are not UTF-8 are escaped, as in \x0a.
std::string printable(std::string_view text);

/// The number of insertions, deletions, replacements and swaps of neighbouring characters that turn `from` into `to`.
std::size_t edit_distance(std::string_view from, std::string_view to);

/// The name that was most likely meant by `name`, for a message. Case, '-' and '_' make no difference, and a name that
/// contains the other one is close: NUM_MICRO_BATCHES is near micro-batches, zbv and ZBVZeroBubble are near zb-v. Of
/// equally close names the first with the smallest edit distance. `names` must not be empty and must outlive the result.
const std::string& nearest(std::string_view name, const std::vector<std::string>& names);

/// The number that `text` consists of, as std::from_chars() reads it; none for any other text, and for a number that is
/// out of the type's range.
template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  return problem == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

/// The parts of `text` between separators, at least one. They point into `text`.
std::vector<std::string_view> separated(std::string_view text, char separator);

/// The items of a list such as "zb-v, 1f1b", without the spaces around them.
std::vector<std::string_view> listed_items(std::string_view text);

/// Of parse_bytes(), for messages.
inline constexpr std::string_view byte_unit_names = "B, kB, MB, GB, TB, KiB, MiB, GiB and TiB";

/// The number of bytes that `text` says, rounded down: a number that is not negative, directly followed by a unit: B,
/// kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024). None for any other text, and for 2^63 bytes
/// or more.
std::optional<std::int64_t> parse_bytes(std::string_view text);

/// "2GiB": the number in the largest power of 1024 of which it is a multiple. parse_bytes(bytes_text(x)) == x.
std::string bytes_text(std::int64_t bytes);

/// A folder whose path is known from the environment alone, and what stands for it in messages.
struct NamedFolder {
  std::string path;  // absolute, without a slash at its end
  std::string name;  // "~" or "$PENSTOCK_DATA"
};

/// The folders that HOME, XDG_CACHE_HOME and PENSTOCK_DATA name in this process's environment, the longest first.
std::vector<NamedFolder> private_folders();

/// `text`, in which user names and passwords of URLs are "***", paths below one of `folders` begin with its name, and
/// control characters other than line breaks and bytes that are not UTF-8 are escaped, as in \x1b.
std::string public_text(std::string_view text, const std::vector<NamedFolder>& folders);

/// The same with the folders of this process's environment. All log lines and error messages of the program are
/// written so.
std::string public_text(std::string_view text);

/// The largest JSON file that is read. Reading takes up to 30 times a file's size in memory, because each value
/// becomes an object.
inline constexpr std::uint64_t most_json_bytes = std::uint64_t{64} << 20;
/// What is read of a pipe or a device, whose size is unknown, at most.
inline constexpr std::uint64_t most_unsized_bytes = std::uint64_t{16} << 20;

struct TextLimits {
  std::uint64_t most_bytes = most_json_bytes;  // and at most most_unsized_bytes where the size is unknown
  /// For the message about a path that cannot be opened, as "a schedule file"; null: the system's reason instead.
  const char* expected = nullptr;
};

/// The contents of the file or pipe at `path`, "-" for standard input. Throws DataError, which names the path and the
/// reason, if it cannot be read or is larger than the limit; that costs no memory beyond the limit, or none at all if the size is known.
std::string read_text(const std::string& path, const TextLimits& limits = {});

/// Returns the result of `read` for the text of a file. A DataError that `read` throws gets `path` before its message.
template <class Read>
auto read_file(const std::string& path, Read&& read, const TextLimits& limits = {}) {
  const std::string text = read_text(path, limits);
  try {
    return read(text);
  } catch (const DataError& error) {
    throw DataError(path + ": " + error.what());
  }
}

/// Whether `pattern` is `text`, with '*' for any characters and '?' for one.
bool fits_pattern(std::string_view pattern, std::string_view text);

/// The items with `separator` between them: text_of(item) of each, which operator<< writes.
template <class Items, class TextOf = std::identity>
std::string listed(const Items& items, std::string_view separator = ", ", const TextOf& text_of = {}) {
  std::ostringstream text;
  std::string_view before;
  for (const auto& item : items) {
    text << before << std::invoke(text_of, item);
    before = separator;
  }
  return text.str();
}

/// "1 rank", "2 ranks", "2 processes", "2 micro-batches".
std::string counted(std::int64_t count, std::string_view what);

/// "a, block0-2, c": the names, separated by commas, of which consecutive ones that end in numbers counting up are one
/// range.
std::string in_ranges(const std::vector<std::string>& names);

/// One line per row. Every column is as wide as its widest cell; cells are right-aligned. All rows must have as many
/// cells as the first one.
std::string aligned(const std::vector<std::vector<std::string>>& rows);

/// "12.50" for decimals = 2.
std::string fixed(double value, int decimals);
/// "12.5 %" for 0.125.
std::string percent(double share);

}  // namespace penstock
