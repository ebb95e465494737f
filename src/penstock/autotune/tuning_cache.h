// The tuning cache: a folder of tuning records, one file per key (docs/tuning_file.md).
#pragma once

#include <optional>
#include <string>

namespace penstock {

struct TuningRecord;

struct TuningCache {
  std::string folder = {};     // made where it does not exist; empty: no cache
  bool measure_again = false;  // read nothing, and replace what is there
  /// What measured times depend on and Penstock cannot see, such as the name of the optimiser; a part of the key.
  std::string settings = {};

  bool is_used() const { return !folder.empty(); }
  /// The file for a key. Its name is a hash of the key; the file contains the whole key.
  std::string file_of(const std::string& key) const;

  /// The record of a key. None if there is no file or if it cannot be used: damaged, of another version or of
  /// another key, with a warning. Never throws for a file's contents.
  std::optional<TuningRecord> find(const std::string& key) const;
  /// Writes a record to a temporary file and renames it, so that readers see the old file or the whole new one. Warns
  /// where that fails, because a run does not need the file.
  void store(const TuningRecord& record) const;
};

/// $XDG_CACHE_HOME/penstock, or .cache/penstock in the home folder; empty where the environment names neither. Relative
/// paths in XDG_CACHE_HOME are ignored, as its specification demands.
std::string default_tuning_folder();

}  // namespace penstock
