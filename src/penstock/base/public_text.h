// Text as it may be shown or stored in a log: without secrets and without commands to a terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

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

}  // namespace penstock
