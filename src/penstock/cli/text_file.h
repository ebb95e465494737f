// Text from and to files, for verbs. "-" is standard output.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

/// Throws DataError naming the file and the reason.
std::string read_text(const std::string& path);

/// Puts `text` into the file in one step: other programs see the file as it was before or all of it, and an error
/// leaves nothing half-written. Something that is no regular file (/dev/null, a pipe) is written as it is.
/// Throws ConfigError for a folder that is not there, Failure when writing fails.
void write_text(const std::string& path, std::string_view text);

}  // namespace penstock
