// What a started job leaves on disk: the instructions of every rank, and a journal that says how each rank ended.
//
//   layout rank      DIR/1/rank.0/stdout  DIR/1/rank.0/stderr  ...  DIR/1/launch.log    first attempt
//                    DIR/2/...                                                          second
//   layout worker    DIR/worker_0.log (both streams)  ...           DIR/launch.log      first attempt
//                    DIR/worker_0.2.log               ...           DIR/launch.2.log    second
//
// Attempts count from 1, over all jobs of a folder: nothing is ever overwritten.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace penstock {

enum class LogLayout { rank, worker };

/// How a rank ended: of a signal, or with an exit code.
struct Ending {
  int rank = 0;
  int exit_code = 0;
  int signal = 0;  // 0: none
  /// A signal to end had reached the rank's group before: the ending may be no more than the clean-up.
  bool was_told = false;

  bool failed() const { return exit_code != 0 || signal != 0; }
  /// As a shell tells it: 128 + n for signal n.
  int status() const { return signal != 0 ? 128 + signal : exit_code; }
  /// "exit code 3", "signal 9 (Killed)".
  std::string told() const;
  friend bool operator==(const Ending&, const Ending&) = default;
};

/// Where a rank's two streams go; one file for both in the layout `worker`.
struct RankLogs {
  std::filesystem::path out;
  std::filesystem::path err;
};

/// The files of one attempt.
class JobLogs {
 public:
  JobLogs(std::filesystem::path folder, LogLayout layout, int attempt);

  /// Takes the next attempt's number, which no other job gets then; makes the folder. Throws ConfigError when there is
  /// no place for one.
  static JobLogs claim(const std::filesystem::path& folder, LogLayout layout);

  const std::filesystem::path& folder() const { return folder_; }
  LogLayout layout() const { return layout_; }
  int attempt() const { return attempt_; }

  RankLogs of_rank(int rank) const;
  std::filesystem::path journal() const;
  /// For people: the folder of the attempt, or the pattern of its files.
  std::string shown() const;

  /// Puts a line at the journal's end. Several processes may do so at once. Throws Failure.
  void note(const std::string& line) const;
  void note(const Ending& ending) const;
  /// That `signal`, which the launcher sends to end a rank, has come for this one.
  void note_told(int rank, int signal) const;

  /// The endings in the journal, in the order in which they happened.
  std::vector<Ending> endings() const;
  /// The ranks below `count` that have logs here, but neither ended nor were told to as far as the journal knows: what
  /// ran around them was killed.
  std::vector<int> vanished(int count) const;

 private:
  std::filesystem::path folder_;
  LogLayout layout_;
  int attempt_;
};

/// At most `count` lines from the end of a file; none when it cannot be read. A last line may be unfinished.
std::vector<std::string> last_lines(const std::filesystem::path& path, std::size_t count);

/// Whether an ending may be the cause of others: it is a failure, and not the launcher's clean-up.
bool is_own_failure(const Ending& ending);

/// The rank that failed first, and how: of those that failed by themselves. A rank that was told to end, and failed in
/// its own way while it did, comes behind all that were not. None where all failures are the clean-up's.
std::optional<Ending> first_failure(const std::vector<Ending>& endings);

/// Exit code of a job whose ranks ended so: the worst of those that failed by themselves, before they were told to end
/// where there is one; 0 where none did. Ranks that were ended by SIGTERM or SIGKILL after the first failure do not
/// count: that is how a launcher ends the others, also where nobody noted that it told them.
int exit_code_of(const std::vector<Ending>& endings);

}  // namespace penstock
