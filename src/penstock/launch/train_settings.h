// The settings of a `penstock train` on which its restarts depend.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// Settings of a training, from its flags and its --config file. Empty text: not given.
struct TrainSettings {
  std::string checkpoint = {};  // the folder of checkpoints
  std::string resume = {};      // what --resume says: a folder, one checkpoint of it, or "auto"
  std::string max_time = {};    // what --max-time says
  std::string plan = {};
  std::string schedule = {};
  std::string partition = {};
  std::string transport = {};
  int replicas = 1;

  /// The folder into which the training writes checkpoints; empty: none. A resumed training goes on in the folder from
  /// which it resumes unless --checkpoint names another.
  std::string folder() const;
};

/// Parses the output of `penstock train ... --print-config`. Throws Failure for a line that is none of it.
TrainSettings parse_train_settings(std::string_view printed);

/// Asks the program itself: runs arguments[0] with these arguments and --print-config. They begin with the program and
/// its verb "train". Throws Misuse if the program refuses its arguments, which it reports itself on standard error; and
/// Failure if it does not answer.
TrainSettings read_train_settings(const std::vector<std::string>& arguments);

/// The arguments of a later attempt of `arguments`, so that it goes on from the newest checkpoint: with "--resume auto"
/// where it would begin anew, and with "--resume FOLDER" where it would begin from one checkpoint or another folder
/// again although this job has written a newer one (`has_progress`).
std::vector<std::string> resuming_arguments(const std::vector<std::string>& arguments, const TrainSettings& settings,
                                            bool has_progress);

}  // namespace penstock
