// Where a verb's result goes: a file, whole or not at all, or stdout.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

/// Writes `text` to `path`, or to stdout for "-". A file appears complete or not at all: it is written beside its place
/// and renamed. Throws ConfigError when it cannot be written.
void write_output(const std::string& path, std::string_view text);

}  // namespace penstock
