// The config file of a command line: that of --config, or what is stored with the checkpoint of --resume.
#pragma once

#include <optional>

#include "penstock/cli/config_file.h"

namespace penstock {

/// The file that --config names, or else the settings that are stored with the newest complete checkpoint of the folder
/// that --resume names; none if neither is given. Throws DataError for a file that cannot be read or has more than
/// 1 MiB.
std::optional<ConfigText> given_config(const ConfiguredLine& line, const CLI::App& program);

}  // namespace penstock
