// The files of a launched job: the output of every rank, also on the screen, and launch.log, which records how each
// rank ended.
//
//   layout rank      DIR/1/rank.0/stdout  DIR/1/rank.0/stderr  ...  DIR/1/launch.log    first attempt
//                    DIR/2/...                                                          second
//   layout worker    DIR/worker_0.log (both streams)  ...           DIR/launch.log      first attempt
//                    DIR/worker_0.2.log               ...           DIR/launch.2.log    second
//
// Attempts are numbered from 1, over all jobs of a folder; no file is ever overwritten.
#pragma once

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace penstock::launch {

enum class LogLayout { rank, worker };

/// The files of a rank's stdout and stderr; the same file in the layout `worker`.
struct RankLogs {
  std::filesystem::path out;
  std::filesystem::path err;
};

/// The files of one attempt.
class JobLogs {
 public:
  /// Reserves the next attempt number for this job and creates the folder. Throws ConfigError if it cannot be created.
  static JobLogs claim(const std::filesystem::path& folder, LogLayout layout);

  RankLogs of_rank(int rank) const;
  /// launch.log.
  std::filesystem::path journal() const;
  /// For messages: the folder of the attempt, or the pattern of its files.
  std::string shown() const;

  /// Appends a line to launch.log. Throws Failure.
  void note(const std::string& line) const;

 private:
  JobLogs(std::filesystem::path folder, LogLayout layout, int attempt);

  std::filesystem::path folder_;
  LogLayout layout_;
  int attempt_;
};

/// Creates a new file in append mode, so that both streams may write to it, and its folder; returns its descriptor.
/// Throws Failure.
int create_log(const std::filesystem::path& path);

enum class ShownRanks { none, first, all };

/// Copies the existing logs of rank 0, or of all ranks, to stdout and stderr as they grow, and at the end what remains.
/// Lines of all ranks begin with the rank, "[rank 1] ...", and lines of different ranks are never mixed. The thread
/// takes no signals. If the screen cannot be written, further output is dropped: the files have everything.
std::jthread show_logs(const JobLogs& logs, int ranks, ShownRanks shown);

/// The last lines of a file, at most `count`; empty if it cannot be read. The last one may be unfinished.
std::vector<std::string> last_lines(const std::filesystem::path& path, std::size_t count);

}  // namespace penstock::launch
