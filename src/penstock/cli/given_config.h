// The config files of a command line: that of --config, and what is stored with the checkpoint of --resume.
#pragma once

#include <optional>

#include "penstock/cli/config_file.h"

namespace penstock {

/// The file that --config names; none if it is not given. Throws DataError for a file that cannot be read or has more
/// than 1 MiB.
std::optional<ConfigText> given_config(const ConfiguredLine& line, const CLI::App& program);

/// The settings that are stored with the newest complete checkpoint of the folder that --resume names, on the line or
/// in a file that it has read; none without --resume. Throws DataError likewise.
std::optional<ConfigText> stored_config(const ConfiguredLine& line, const CLI::App& program);

}  // namespace penstock
