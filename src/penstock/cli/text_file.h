// Writes text files; base/text.h reads them. The output path "-" is standard output.
#pragma once

#include <string>
#include <string_view>

namespace penstock::cli {

/// Throws ConfigError if write_text() could not write to `path`, to detect that before long work. Does not modify an
/// existing file.
void require_place_for(const std::string& path);

/// Writes `text` to a new temporary file (O_EXCL, O_NOFOLLOW) and renames it to `path`: other programs see either the
/// old file or the complete new one. If `path` is not a regular file (/dev/null, a pipe), writes to it directly. Throws
/// ConfigError if the folder does not exist or is not writable, Failure if writing fails.
void write_text(const std::string& path, std::string_view text);

}  // namespace penstock::cli
