// A job that `penstock launch` starts, and starts again when it fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/base/clock.h"
#include "penstock/launch/elastic.h"
#include "penstock/launch/job_logs.h"
#include "penstock/launch/job_screen.h"
#include "penstock/launch/launcher_arguments.h"
#include "penstock/launch/process_group.h"
#include "penstock/launch/train_settings.h"

namespace penstock {

struct LaunchOptions {
  LaunchSettings settings = {};
  std::string log_folder = "log_output";
  LogLayout layout = LogLayout::rank;
  ShownRanks shown = ShownRanks::first;
  int restarts = 0;
  std::chrono::milliseconds grace{30'000};
  std::optional<ElasticRange> elastic = {};
  std::string host_discovery = {};  // a program; empty: the hosts of `settings`
};

/// The program that every rank runs.
struct LaunchedProgram {
  std::vector<std::string> arguments = {};
  bool is_ours = false;                        // a verb of this program, whose path is then the first argument
  std::optional<TrainSettings> settings = {};  // where they have been read already

  bool is_train() const { return is_ours && arguments.size() > 1 && arguments[1] == "train"; }
};

/// Starts the ranks, waits for their end, and starts them again as the options say. Prints errors to standard error.
class LaunchedJob {
 public:
  /// Throws ConfigError for options that do not fit the program, and Failure if a program that is asked about the job
  /// gives no answer.
  LaunchedJob(LaunchOptions options, LaunchedProgram program);

  /// The launcher's command line of the first attempt. Nothing is started but the discovery of hosts.
  std::string command_line() const;

  /// Runs the job and returns its exit code. Throws Failure if an attempt cannot begin.
  int run();

 private:
  /// An attempt that begins.
  struct Start {
    LaunchSettings settings = {};
    std::vector<std::string> program = {};
  };
  /// How an attempt ended.
  struct Outcome {
    int exit_code = 0;
    bool is_final = true;    // done, or ended by a signal: starting again makes no sense
    bool is_misuse = false;  // of the program, by its exit code
    std::string cause = {};  // "rank 1 of 2: signal 9 (Killed)"
  };

  Start start_of(bool is_restart, bool has_progress) const;
  std::string time_left() const;
  void make_elastic(Start& start, bool is_restart) const;
  std::vector<HostSlots> hosts_now(bool is_restart) const;
  std::vector<std::string> launcher_line(const Start& start, const JobLogs& logs) const;
  EndingOptions ending_options(const LaunchSettings& settings, const JobLogs& logs) const;

  Outcome attempt(const Start& start) const;
  Outcome outcome_of(const GroupEnd& end, const JobLogs& logs, int ranks) const;

  LaunchOptions options_;
  LaunchedProgram program_;
  LaunchingMachine machine_;
  TrainSettings train_;  // of the verb `train`, if it matters
  std::int64_t begin_ns_ = now_ns();
};

/// The path of this program.
std::string own_path();

}  // namespace penstock
