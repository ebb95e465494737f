// Flags from a TOML file: `penstock train --config run.toml`, and a run's flags as such a file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <CLI/App.hpp>

#include "penstock/cli/exit_codes.h"

namespace penstock {

/// Adds --config and --print-config to a verb, which calls print_config_instead() before it does its work.
void add_config_flags(CLI::App& verb);

/// A command line with the flags of its config file put in front of its own, and where each came from.
class ConfiguredLine {
 public:
  /// The line as it is, until read_file().
  explicit ConfiguredLine(const CommandLine& line);

  /// Where `line` names a verb of `program` and a --config for it, reads that file: a flag per key, `-` and `_` alike;
  /// strings, numbers, true and false, and lists of them for flags that are lists. Keys whose flag the line gives too,
  /// or excludes, are left out. Throws ConfigError, naming file and line, for a file that is no TOML, an unknown key
  /// (with the nearest one), a key twice, a table and a value of another type than the flag takes; DataError for a file
  /// that cannot be read.
  void read_file(const CLI::App& program);

  CommandLine arguments();
  /// "run.toml:3: " where `message` begins with a flag that the file set; else nothing.
  std::string place_of(const std::string& message) const;

 private:
  std::vector<std::string> arguments_;
  std::vector<char*> pointers_;
  std::map<std::string, std::string> places_;  // by flag, with its dashes
};

/// Where --print-config was given: prints every flag of `verb` with the value that it came to, as TOML and once for all
/// processes, and returns true. A flag without a value stands there as a comment. Reading it back with --config gives
/// the same run.
bool print_config_instead(const CLI::App& verb);

}  // namespace penstock
