// The files of a launched job: the output of every rank, and a journal that records how each rank ended.
//
//   layout rank      DIR/1/rank.0/stdout  DIR/1/rank.0/stderr  ...  DIR/1/launch.log    first attempt
//                    DIR/2/...                                                          second
//   layout worker    DIR/worker_0.log (both streams)  ...           DIR/launch.log      first attempt
//                    DIR/worker_0.2.log               ...           DIR/launch.2.log    second
//
// Attempts are numbered from 1, over all jobs of a folder; no file is ever overwritten.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace penstock {

enum class LogLayout { rank, worker };

/// How a rank ended: by a signal or with an exit code.
struct Ending {
  int rank = 0;
  int exit_code = 0;
  int signal = 0;  // 0: none
  /// Whether the rank's process group received a terminating signal before: then the ending may be part of the clean-up
  /// after another rank's failure.
  bool was_signalled = false;

  bool failed() const { return exit_code != 0 || signal != 0; }
  /// The exit status as in a shell: 128 + n for signal n.
  int status() const { return signal != 0 ? 128 + signal : exit_code; }
  /// "exit code 3", "signal 9 (Killed)".
  std::string text() const;
  friend bool operator==(const Ending&, const Ending&) = default;
};

/// The files of a rank's stdout and stderr; the same file in the layout `worker`.
struct RankLogs {
  std::filesystem::path out;
  std::filesystem::path err;
};

/// The files of one attempt.
class JobLogs {
 public:
  JobLogs(std::filesystem::path folder, LogLayout layout, int attempt);

  /// Reserves the next attempt number for this job and creates the folder. Throws ConfigError if it cannot be created.
  static JobLogs claim(const std::filesystem::path& folder, LogLayout layout);

  const std::filesystem::path& folder() const { return folder_; }
  LogLayout layout() const { return layout_; }
  int attempt() const { return attempt_; }

  RankLogs of_rank(int rank) const;
  std::filesystem::path journal() const;
  /// For messages: the folder of the attempt, or the pattern of its files.
  std::string shown() const;

  /// Appends a line to the journal. Several processes may do so at once. Throws Failure.
  void note(const std::string& line) const;
  void note(const Ending& ending) const;
  /// Records that the rank's process group received `signal`, by which the launcher ends a rank.
  void note_signal(int rank, int signal) const;

  /// The endings in the journal, in the order in which they happened.
  std::vector<Ending> endings() const;
  /// The ranks below `count` that have log files but, according to the journal, neither ended nor received a signal:
  /// their supervisors were killed.
  std::vector<int> vanished(int count) const;

 private:
  std::filesystem::path folder_;
  LogLayout layout_;
  int attempt_;
};

/// Whether this is the exit code of a verb of penstock that was asked to end before its goal and has saved its state:
/// 128 + SIGINT, SIGUSR1 or SIGTERM, and 75 after a time limit. All its ranks agree on that.
bool is_polite_stop(int exit_code);

/// The last lines of a file, at most `count`; empty if it cannot be read. The last one may be unfinished.
std::vector<std::string> last_lines(const std::filesystem::path& path, std::size_t count);

/// Whether the ending is a failure of the rank itself and not the launcher's clean-up.
bool is_own_failure(const Ending& ending);

/// The first failure that is not part of the clean-up. Ranks that failed without receiving a signal before precede
/// ranks that received one and then failed with an exit code. Unset if there is no such failure.
std::optional<Ending> first_failure(const std::vector<Ending>& endings);

/// The exit code of a job: the largest status of the ranks that failed by themselves, preferring ranks that received no
/// signal before; 0 if there are none. Ranks that ended by SIGTERM or SIGKILL after the first failure do not count,
/// because a launcher ends the other ranks in this way, even if the journal has no record of the signal.
int exit_code_of(const std::vector<Ending>& endings);

}  // namespace penstock
