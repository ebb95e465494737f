// The flags of `train` for checkpoints, and what a checkpoint says about the run that wrote it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/App.hpp>

#include "penstock/checkpoint/manifest.h"
#include "penstock/cli/job_flags.h"
#include "penstock/cli/weight_file.h"
#include "penstock/train/checkpoint_hook.h"

namespace penstock::cli {

/// The value of --resume that starts anew if there is no checkpoint.
inline constexpr const char* resume_if_possible = "auto";

/// The largest file of settings that is read.
inline constexpr std::uint64_t most_settings_bytes = std::uint64_t{1} << 20;

struct StoredSettings {
  std::string path;  // for messages
  std::string text;  // TOML
};

/// The settings that are stored with the newest complete checkpoint of a folder, or with the checkpoint `path`; none if
/// there is none, or it has none.
std::optional<StoredSettings> stored_settings(const std::string& path);

struct CheckpointFlags {
  std::string folder;
  std::optional<std::string> every;
  std::optional<int> keep;
  std::string resume;
  std::string max_time;

  void add_to(CLI::App& verb);
  /// Completes and checks the flags: --resume DIR continues to write there unless another folder is named. Throws
  /// ConfigError.
  void settle();

  bool writes() const { return !folder.empty(); }
  bool resumes() const { return !resume.empty(); }
  /// The folder or checkpoint to resume from.
  std::string source() const { return resume == resume_if_possible ? folder : resume; }
  /// Whether the run that resumes writes its checkpoints where those are from which it resumes.
  bool continues_in_place() const;
  CheckpointEvery interval() const;
  /// Seconds; none without --max-time.
  std::optional<double> longest_time() const;
};

/// The checkpoint that a run will resume from, as far as it decides flags; and its network.
struct RecordedRun {
  Manifest manifest;
  std::string directory;
  std::map<std::string, std::string> weight_metadata = {};
  std::string kernel_selection = {};  // empty: not tuned
  std::string settings = {};          // the stored text of its flags; empty: none
  bool has_all_weights = true;        // it leaves out no frozen parameter
};

/// How many tensors and numbers the model of a checkpoint has.
HeldTensors tensors_of(const RecordedRun& recorded);

/// The newest complete checkpoint that --resume names; none without it, and where `auto` finds none. Throws ConfigError
/// if another --resume finds none.
std::optional<RecordedRun> recorded_run(const CheckpointFlags& flags);

/// Sets what --schedule auto and tuned kernels leave to measuring, and on which bits depend, as the run had it.
void keep_recorded_bits(const RecordedRun& recorded, JobFlags& flags);

/// The small files that are stored with a checkpoint: the settings, and the kernels if they are tuned.
std::vector<CheckpointText> texts_of_run(const std::string& settings, const Pipeline& pipeline);

}  // namespace penstock::cli
