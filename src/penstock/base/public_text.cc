#include "penstock/base/public_text.h"

#include <algorithm>
#include <cstdlib>

#include "penstock/base/utf8.h"

namespace penstock {
namespace {

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

}  // namespace

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

}  // namespace penstock
