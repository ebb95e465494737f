// The processes of a job's ranks on this machine: starts them, passes signals on, and ends all when one has failed.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "penstock/launch/job_logs.h"

namespace penstock::launch {

struct RankJob {
  std::vector<std::string> program = {};  // what every rank runs: a program, looked up in PATH, and its arguments
  bool is_ours = false;                   // a verb of penstock, with the exit codes of is_polite_stop()
  int ranks = 0;
  ShownRanks shown = ShownRanks::first;
  std::chrono::milliseconds grace{30'000};  // the time to save and end after a signal
};

/// How a rank ended: by a signal or with an exit code.
struct Ending {
  int rank = 0;
  int exit_code = 0;
  int signal = 0;              // 0: none
  bool was_signalled = false;  // `launch` had told it to end

  bool failed() const { return exit_code != 0 || signal != 0; }
  /// Whether this is a failure of the rank itself, and not the end that it was told to come to.
  bool is_own_failure() const { return failed() && !(was_signalled && signal != 0); }
  /// The exit status as in a shell: 128 + n for signal n.
  int status() const { return signal != 0 ? 128 + signal : exit_code; }
  /// "exit code 3", "signal 9 (Killed)".
  std::string text() const;
  friend bool operator==(const Ending&, const Ending&) = default;
};

struct RanksEnd {
  std::vector<Ending> endings = {};  // in the order of time
  int received = 0;                  // the first SIGINT, SIGTERM, SIGHUP or SIGQUIT that this process received; 0: none
  bool was_warned = false;           // it received SIGUSR1
};

/// Starts the program once for each rank, in a process group of its own, with its logs as its streams, and waits until
/// all have ended. Standard input is that of rank 0, unless it is a terminal. A program that cannot be started ends its
/// rank with 127 and a line in its log. Ranks have torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK,
/// LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT), not those of a launcher around the job, and PENSTOCK_LOG_EVERY_RANK.
/// The port is of the loopback interface and another one in each call: nothing listens there, and it is above 10000 and
/// not one that the kernel gives to connections, if there are such, so that none takes it before rank 0 does.
///
/// SIGTERM, SIGINT, SIGHUP and SIGQUIT to this process send SIGTERM to the ranks' groups, which have `grace` to end; a
/// second one, half a second later or more, ends that time. SIGUSR1 and SIGUSR2 are passed on. When a rank fails, the
/// others have a second to fail by themselves. Ranks whose time is over receive SIGTERM, and SIGKILL two seconds later.
/// Signals that this process ignores stay ignored. An ending that was asked for is not a failure: is_polite_stop() of a
/// verb of penstock, else by the signal that was sent or with 128 + its number.
///
/// At the end no descendant is left; if this process is killed, so are the ranks, but not what they have started. Call
/// it on the main thread, without other child processes. Throws Failure if a log cannot be written or no process be
/// started; the caller should end then.
RanksEnd run_ranks(const RankJob& job, const JobLogs& logs);

/// Whether this is the exit code of a verb of penstock that was asked to end before its goal and has saved its state:
/// 128 + SIGINT, SIGUSR1 or SIGTERM, and 75 after a time limit. All its ranks agree on that.
bool is_polite_stop(int exit_code);

/// The first failure that is not part of the clean-up. Ranks that failed before they were told to end precede ranks
/// that were told to and then failed with an exit code. Unset if there is no such failure.
std::optional<Ending> first_failure(const std::vector<Ending>& endings);

/// The exit code of a job: the largest status of the ranks that failed by themselves before they were told to end, or
/// else of those that failed afterwards; 0 if there are none.
int exit_code_of(const std::vector<Ending>& endings);

}  // namespace penstock::launch
