// What all ranks of a job write, on one screen.
#pragma once

#include <thread>
#include <vector>

#include "penstock/cli/follow_log.h"
#include "penstock/cli/job_logs.h"

namespace penstock {

/// While it lives, it copies the logs of all ranks to standard output and standard error as they grow, every line with
/// its rank before it: "[rank 1] ...". Lines stay whole, whatever their ranks do. It reads the logs themselves: those
/// of other hosts are seen only where hosts share the folder.
class JobScreen {
 public:
  JobScreen(const JobLogs& logs, int ranks);
  JobScreen(const JobScreen&) = delete;
  JobScreen& operator=(const JobScreen&) = delete;
  /// Shows what is left first.
  ~JobScreen();

 private:
  struct Source {
    std::filesystem::path path;
    int stream;
    std::string mark;
  };

  void follow(const std::stop_token& stop);
  void find_new_logs();

  std::vector<Source> awaited_;  // logs that are not there yet
  std::vector<LogFollower> followers_;
  std::jthread thread_;
};

}  // namespace penstock
