#include "penstock/base/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "penstock/base/error.h"

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

/// The letters and digits in lower case.
std::string letters_of(std::string_view name) {
  std::string letters;
  for (const char c : name)
    if (c != '-' && c != '_') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

/// The edit distance of the letters, or 1 if `name` contains `known`. Two letters are contained by coincidence.
std::size_t distance_of_letters(const std::string& name, const std::string& known) {
  constexpr std::size_t shortest_part = 3;
  const std::size_t distance = edit_distance(name, known);
  const bool is_part = std::min(name.size(), known.size()) >= shortest_part &&
                       (name.find(known) != std::string::npos || known.find(name) != std::string::npos);
  return is_part ? std::min<std::size_t>(distance, 1) : distance;
}

struct ByteUnit {
  std::string_view name;
  std::int64_t bytes;
};

// From small to large; those of 1024 come last, because bytes_text() takes the last one that divides a number.
constexpr ByteUnit byte_units[] = {
    {"kB", 1000},     {"MB", 1'000'000}, {"GB", 1'000'000'000}, {"TB", 1'000'000'000'000},     {"B", 1},
    {"KiB", 1 << 10}, {"MiB", 1 << 20},  {"GiB", 1 << 30},      {"TiB", std::int64_t{1} << 40}};
constexpr std::size_t first_shown = 4;  // B

constexpr std::string_view scheme_end = "://";
/// What ends the part of a URL with its user, password and host.
constexpr std::string_view authority_ends = "/?# \t\r\n'\"`<>,;)";

bool continues_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

std::string without_passwords(std::string_view text) {
  std::string shown;
  for (std::size_t at = 0;;) {
    const std::size_t begin = text.find(scheme_end, at);
    if (begin == std::string_view::npos) return shown.append(text.substr(at));
    const std::size_t authority = begin + scheme_end.size();
    shown.append(text.substr(at, authority - at));
    const std::size_t end = std::min(text.find_first_of(authority_ends, authority), text.size());
    const std::size_t at_sign = text.substr(authority, end - authority).rfind('@');
    if (at_sign != std::string_view::npos) shown += "***";
    at = authority + (at_sign == std::string_view::npos ? 0 : at_sign);
  }
}

/// Replaces the path of `folder` where it is a whole path or the begin of one.
std::string with_name(const std::string& text, const NamedFolder& folder) {
  std::string shown;
  for (std::size_t at = 0;;) {
    const std::size_t begin = text.find(folder.path, at);
    if (begin == std::string::npos) return shown.append(text, at);
    const std::size_t end = begin + folder.path.size();
    const bool begins = begin == 0 || (!continues_name(text[begin - 1]) && text[begin - 1] != '/');
    const bool ends = end == text.size() || !continues_name(text[end]);
    shown.append(text, at, begin - at).append(begins && ends ? folder.name : folder.path);
    at = end;
  }
}

std::string with_visible_controls(std::string_view text) {
  std::string shown;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find('\n', begin);
    shown += printable(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return shown;
    shown += '\n';
    begin = end + 1;
  }
}

namespace fs = std::filesystem;

void require_opened(bool is_open, const std::string& path, const TextLimits& limits) {
  const int reason = errno;
  std::error_code ignored;
  const bool is_folder = is_open && fs::is_directory(path, ignored);
  require<DataError>(limits.expected == nullptr || (is_open && !is_folder), path, ": cannot be opened; ",
                     limits.expected ? limits.expected : "", " is expected there");
  require<DataError>(is_open, path, ": cannot be opened: ", std::strerror(reason));
  require<DataError>(!is_folder, path, ": is a folder, and a file is expected there");
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

std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::vector<std::size_t>> cost(from.size() + 1, std::vector<std::size_t>(to.size() + 1));
  for (std::size_t i = 0; i <= from.size(); ++i)
    for (std::size_t j = 0; j <= to.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const bool differ = from[i - 1] != to[j - 1];
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (differ ? 1 : 0)});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  return cost[from.size()][to.size()];
}

const std::string& nearest(std::string_view name, const std::vector<std::string>& names) {
  const std::string letters = letters_of(name);
  const auto distance = [&](const std::string& known) {
    return std::pair(distance_of_letters(letters, letters_of(known)), edit_distance(name, known));
  };
  return *std::min_element(names.begin(), names.end(),
                           [&](const std::string& a, const std::string& b) { return distance(a) < distance(b); });
}

std::vector<std::string_view> separated(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t end = text.find(separator); end != std::string_view::npos; end = text.find(separator)) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> listed_items(std::string_view text) {
  std::vector<std::string_view> items = separated(text, ',');
  for (std::string_view& item : items) {
    item.remove_prefix(std::min(item.find_first_not_of(' '), item.size()));
    item.remove_suffix(item.size() - (item.find_last_not_of(' ') + 1));
  }
  return items;
}

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  double number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || !(number >= 0) || std::signbit(number)) return std::nullopt;
  const std::string_view name = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const ByteUnit& unit : byte_units) {
    if (unit.name != name) continue;
    // A whole number is read exactly: a double has 53 bits.
    if (const auto whole = number_of<std::int64_t>(text.substr(0, text.size() - name.size()))) {
      std::int64_t bytes = 0;
      return __builtin_mul_overflow(*whole, unit.bytes, &bytes) ? std::nullopt : std::optional(bytes);
    }
    const double bytes = std::floor(number * static_cast<double>(unit.bytes));
    if (!(bytes < 0x1p63)) return std::nullopt;
    return static_cast<std::int64_t>(bytes);
  }
  return std::nullopt;
}

std::string bytes_text(std::int64_t bytes) {
  const ByteUnit* shown = &byte_units[first_shown];
  for (const ByteUnit& unit : byte_units)
    if (&unit > shown && bytes != 0 && bytes % unit.bytes == 0) shown = &unit;
  return say(bytes / shown->bytes, shown->name);
}

std::vector<NamedFolder> private_folders() {
  std::vector<NamedFolder> folders;
  const auto add = [&](const char* variable, const char* name) {
    const char* value = std::getenv(variable);
    std::string path = value ? value : "";
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    if (path.size() > 1 && path.front() == '/') folders.push_back({std::move(path), name});
  };
  add("PENSTOCK_DATA", "$PENSTOCK_DATA");
  add("XDG_CACHE_HOME", "$XDG_CACHE_HOME");
  add("HOME", "~");
  std::stable_sort(folders.begin(), folders.end(),
                   [](const NamedFolder& a, const NamedFolder& b) { return a.path.size() > b.path.size(); });
  return folders;
}

std::string public_text(std::string_view text, const std::vector<NamedFolder>& folders) {
  std::string shown = without_passwords(text);
  for (const NamedFolder& folder : folders) shown = with_name(shown, folder);
  return with_visible_controls(shown);
}

std::string public_text(std::string_view text) { return public_text(text, private_folders()); }

std::string read_text(const std::string& path, const TextLimits& limits) {
  if (path == "-") return read_text("/dev/stdin", limits);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  require_opened(file.is_open(), path, limits);

  constexpr std::size_t piece = std::size_t{1} << 16;
  std::string text;
  std::uint64_t most = limits.most_bytes;
  std::error_code unknown_size;
  const std::uintmax_t size = fs::file_size(path, unknown_size);
  if (unknown_size) {
    most = std::min(most, most_unsized_bytes);
  } else {
    require<DataError>(size <= most, path, ": has ", size, " bytes: more than the ", most, " that are accepted");
    text.reserve(static_cast<std::size_t>(size) + piece);
  }
  while (file && text.size() <= most) {
    const std::size_t before = text.size();
    text.resize(before + piece);
    file.read(text.data() + before, static_cast<std::streamsize>(piece));
    text.resize(before + static_cast<std::size_t>(file.gcount()));
  }
  require<DataError>(!file.bad(), path, ": cannot be read: ", std::strerror(errno));
  require<DataError>(text.size() <= most, path, ": has more than the ", most, " bytes that are accepted");
  return text;
}

std::string counted(std::int64_t count, std::string_view what) {
  return say(count, " ", what, count == 1 ? "" : what.ends_with('s') || what.ends_with("ch") ? "es" : "s");
}

namespace {

/// "block" and 12 of "block12"; no number if the name does not end in one that std::to_string() writes.
struct NumberedName {
  std::string_view stem;
  std::optional<std::uint32_t> number;

  explicit NumberedName(std::string_view name) : stem(name) {
    const std::size_t last = name.find_last_not_of("0123456789");
    const std::string_view digits = name.substr(last == std::string_view::npos ? 0 : last + 1);
    const auto value = number_of<std::uint32_t>(digits);
    if (!value || std::to_string(*value) != digits) return;
    stem.remove_suffix(digits.size());
    number = value;
  }
};

}  // namespace

// Backtracks to the last '*'.
bool fits_pattern(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, after_star = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || (pattern[p] != '*' && pattern[p] == text[t]))) {
      ++p;
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++after_star;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string in_ranges(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t begin = 0, end = 0; begin < names.size(); begin = end) {
    const NumberedName first(names[begin]);
    NumberedName last = first;
    for (end = begin + 1; end < names.size() && first.number; ++end) {
      const NumberedName next(names[end]);
      if (next.stem != first.stem || next.number != *last.number + 1) break;
      last = next;
    }
    text += say(begin > 0 ? ", " : "", names[begin], end > begin + 1 ? say("-", *last.number) : "");
  }
  return text;
}

std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.empty() ? 0 : rows.front().size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (i > 0) text += "  ";
      text += std::string(widths[i] - row[i].size(), ' ') + row[i];
    }
    text += '\n';
  }
  return text;
}

std::string percent(double share) { return fixed(100 * share, 1) + " %"; }

std::string fixed(double value, int decimals) {
  std::array<char, 400> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

}  // namespace penstock
