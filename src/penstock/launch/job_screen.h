// Shows the output of ranks of a job on one screen.
#pragma once

#include <list>
#include <thread>
#include <vector>

#include "penstock/launch/follow_log.h"
#include "penstock/launch/job_logs.h"

namespace penstock {

enum class ShownRanks { none, first, all };

/// While it lives, a thread copies the logs of rank 0, or of all ranks, to stdout and stderr as they grow. Of all ranks
/// with the rank before every line: "[rank 1] ..."; lines of different ranks are never mixed. It reads the log files,
/// so the output of ranks on other hosts appears only if the hosts share the folder.
class JobScreen {
 public:
  JobScreen(const JobLogs& logs, int ranks, ShownRanks shown);
  JobScreen(const JobScreen&) = delete;
  JobScreen& operator=(const JobScreen&) = delete;
  /// Copies the remaining output.
  ~JobScreen();

 private:
  struct Source {
    std::filesystem::path path;
    int stream;
    std::string mark;
  };

  void follow(const std::stop_token& stop);
  void find_new_logs();

  std::vector<Source> awaited_;  // logs that do not exist yet
  std::list<LogFollower> followers_;
  std::jthread thread_;
};

}  // namespace penstock
