// Reads flags from a TOML file (`penstock train --config run.toml`) and prints the flags of a run as such a file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <CLI/App.hpp>

#include "penstock/cli/exit_codes.h"

namespace penstock {

/// Adds --config and --print-config to `verb`, whose callback must call print_config_instead() first.
void add_config_flags(CLI::App& verb);

/// A command line in which the flags of its config file precede its own flags. Not thread-safe.
class ConfiguredLine {
 public:
  explicit ConfiguredLine(const CommandLine& line);

  /// If the line contains a verb of `program` with --config, reads that file: one key per flag, with `-` and `_`
  /// equivalent; values are strings, numbers, booleans, or lists of them for flags that take lists. Keys whose flag is
  /// given on the line, or excluded by a flag on the line, are ignored. Throws ConfigError, which names file and line,
  /// for invalid TOML, an unknown key (suggesting the nearest), a repeated key, a table, and a value of the wrong type;
  /// DataError for a file that cannot be read.
  void read_file(const CLI::App& program);

  /// The combined arguments; the pointers are valid as long as this object lives.
  CommandLine arguments();
  /// "run.toml:3: " if `message` begins with a flag that the file set; else an empty string.
  std::string place_of(const std::string& message) const;

 private:
  std::vector<std::string> arguments_;
  std::vector<char*> pointers_;
  std::map<std::string, std::string> places_;  // "file:line: " for each flag ("--seed") that the file set
};

/// If --print-config was given, prints all flags of `verb` with their values as TOML (one process of a job only) and
/// returns true; else returns false. A flag without a value becomes a comment. The output, read with --config, gives
/// the same run.
bool print_config_instead(const CLI::App& verb);

}  // namespace penstock
