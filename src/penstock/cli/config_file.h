// Takes flags from a TOML file (`penstock train --config run.toml`) and prints the flags of a run as such a file.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <CLI/App.hpp>

#include "penstock/base/process.h"

namespace penstock::cli {

/// Adds --config and --print-config to `verb`. What it does must be set by set_work() (verbs.h).
void add_config_flags(CLI::App& verb);

/// The contents of a config file, and its name for messages.
struct ConfigText {
  std::string file;
  std::string text;
  bool is_stored = false;  // with a checkpoint: it names only outputs below the current folder
};

/// A command line in which the flags of its config file precede its own flags. Not thread-safe.
class ConfiguredLine {
 public:
  /// `program`, which has all flags of its verbs, must outlive it.
  ConfiguredLine(const CLI::App& program, const CommandLine& line);

  /// The value of the last `FLAG VALUE` or `FLAG=VALUE` on the line; none if it is not there, or the line's verb takes
  /// no config file.
  std::optional<std::string> value_of(const std::string& flag) const;

  /// Adds the flags of a config file for the line's verb: one key per flag, with `-` and `_` equivalent; values are
  /// strings, numbers, booleans, or lists of them for flags that take lists. Keys whose flag is given on the line, or
  /// excluded by a flag on the line, are ignored, and in a stored file the flags of earlier versions. Throws
  /// ConfigError, which names file and line, for invalid TOML, an unknown key (suggesting the nearest), a repeated key,
  /// a table, a value of the wrong type, and outputs of a stored file that are not below the current folder.
  void read(const ConfigText& config);

  /// The combined arguments; the pointers are valid as long as this object lives.
  CommandLine arguments();
  /// "run.toml:3: " if `message` begins with a flag that the file set; else an empty string.
  std::string place_of(const std::string& message) const;

 private:
  std::vector<std::string> arguments_;
  const CLI::App* verb_;        // of the line
  std::size_t first_flag_ = 1;  // the first argument after the verb
  std::vector<char*> pointers_;
  std::map<std::string, std::string> places_;  // "file:line: " for each flag ("--seed") that the file set
};

/// All flags of `verb` with their values as TOML, but for those called in `left_out` (without dashes). The output, read
/// with --config, makes the same run.
std::string config_text(const CLI::App& verb, const std::set<std::string>& left_out = {});

/// The flags of `verb` called in `names` (without dashes) whose values differ from those in `stored`, which is a text
/// of config_text(): "optimizer adam instead of sgd, lr 0.1 instead of 0.01"; empty if none does.
std::string changed_flags(const CLI::App& verb, const std::set<std::string>& names, const std::string& stored);

/// If --print-config was given, prints all flags of `verb` with their values as TOML (one process of a job only) and
/// returns true; else returns false. A flag without a value becomes a comment.
bool print_config_instead(const CLI::App& verb);

}  // namespace penstock::cli
