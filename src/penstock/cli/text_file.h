// Text from and to files, for verbs. "-" is standard output.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

/// Throws DataError naming the file and the reason.
std::string read_text(const std::string& path);

/// Throws ConfigError for a path that write_text could not write to: before long work is done for it. What is there
/// stays as it is.
void require_place_for(const std::string& path);

/// Puts `text` into the file in one step: other programs see the file as it was before or all of it, and an error
/// leaves nothing half-written. Something that is no regular file (/dev/null, a pipe) is written as it is.
/// Throws ConfigError where there is no place for a file, Failure when writing fails.
void write_text(const std::string& path, std::string_view text);

}  // namespace penstock
