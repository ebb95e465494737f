#include "penstock/launch/local_launcher.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/launch/blocked_signals.h"
#include "penstock/launch/child_process.h"
#include "penstock/launch/keep_rank.h"
#include "penstock/launch/processor_cores.h"

namespace penstock {
namespace {

constexpr const char* local_address = "127.0.0.1";
constexpr std::chrono::seconds time_to_fail{1}, time_to_end{2};
constexpr int passed_signals[] = {SIGUSR1, SIGUSR2, polite_stop_signal};

// Of a launcher in which this job runs: of Slurm or mpirun, for example, around a single process.
constexpr const char* foreign_variables[] = {"OMPI_COMM_WORLD_RANK",
                                             "OMPI_COMM_WORLD_SIZE",
                                             "OMPI_COMM_WORLD_LOCAL_RANK",
                                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                                             "PMIX_RANK",
                                             "PMI_RANK",
                                             "PMI_SIZE",
                                             "MPI_LOCALRANKID",
                                             "SLURM_PROCID",
                                             "TORCHELASTIC_USE_AGENT_STORE",
                                             "TORCHELASTIC_RESTART_COUNT",
                                             "GROUP_RANK",
                                             "ROLE_RANK",
                                             "PENSTOCK_RANK_COPIES"};

int number_after(std::string_view flag, char* const* arguments) {
  const std::string_view text(arguments[1]);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  require<ConfigError>(flag == arguments[0] && error == std::errc() && end == text.data() + text.size() && number >= 0,
                       local_launcher_verb, " is for internal use by penstock launch");
  return number;
}

// Positions on the command line: the verb is argument 1.
constexpr int first_of_program = 8;

LocalJob read_local_job(const CommandLine& line) {
  require<ConfigError>(line.count > first_of_program, local_launcher_verb, " is for internal use by penstock launch");
  return {.ranks = number_after("-n", line.arguments + 2),
          .master_port = number_after("--master-port", line.arguments + 4),
          .cores_of_each = number_after("--cores", line.arguments + 6)};
}

/// Runs in the process of a rank before it executes its program.
void become_local_rank(const LocalJob& job, int rank) {
  for (const char* name : foreign_variables) ::unsetenv(name);
  const auto set = [](const char* name, int value) { ::setenv(name, std::to_string(value).c_str(), 1); };
  set("RANK", rank);
  set("LOCAL_RANK", rank);
  set("WORLD_SIZE", job.ranks);
  set("LOCAL_WORLD_SIZE", job.ranks);
  ::setenv("MASTER_ADDR", local_address, 1);
  set("MASTER_PORT", job.master_port);
  bind_to({rank, job.cores_of_each});
  // A read from a terminal would stop this process, whose group is not in the foreground.
  if (rank == 0 && ::isatty(STDIN_FILENO) == 0) return;
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(nothing, STDIN_FILENO);
}

/// The ranks' processes, each the leader of its group.
class LocalRanks {
 public:
  void add(pid_t rank) { running_.push_back(rank); }
  bool are_running() const { return !running_.empty(); }

  void send(int signal) const {
    for (const pid_t rank : running_) ::kill(-rank, signal);
  }

  /// Takes a signal that is to end the job.
  void end_by(int signal) {
    if (exit_code_ == 0) exit_code_ = 128 + signal;
    end_at(now_ns());
  }

  /// Notes which ranks have ended.
  void reap() {
    int status = 0;
    for (pid_t child = 0; (child = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (std::erase(running_, child) == 0) continue;  // an orphan of a rank
      const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (code == 0) continue;
      if (exit_code_ == 0) exit_code_ = code;
      end_at(now_ns() + std::chrono::nanoseconds(time_to_fail).count());
    }
  }

  /// Ends the ranks whose time is over.
  void poll() {
    if (now_ns() >= term_at_ns_) {
      send(SIGTERM);
      kill_at_ns_ = now_ns() + std::chrono::nanoseconds(time_to_end).count();
      term_at_ns_ = never;
    }
    if (now_ns() >= kill_at_ns_) send(SIGKILL);
  }

  bool is_ending() const { return has_received_term() || term_at_ns_ != never; }
  int exit_code() const { return exit_code_; }

 private:
  static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

  bool has_received_term() const { return kill_at_ns_ != never; }
  void end_at(std::int64_t time_ns) {
    if (!has_received_term()) term_at_ns_ = std::min(term_at_ns_, time_ns);
  }

  std::vector<pid_t> running_;
  int exit_code_ = 0;
  std::int64_t term_at_ns_ = never;
  std::int64_t kill_at_ns_ = never;
};

bool is_among(const auto& signals, int signal) {
  return std::find(std::begin(signals), std::end(signals), signal) != std::end(signals);
}

}  // namespace

std::vector<std::string> local_launcher_arguments(const std::string& self, const LocalJob& job) {
  return {self,
          local_launcher_verb,
          "-n",
          std::to_string(job.ranks),
          "--master-port",
          std::to_string(job.master_port),
          "--cores",
          std::to_string(job.cores_of_each)};
}

void run_local_launcher(const CommandLine& line) {
  const LocalJob job = read_local_job(line);
  const std::vector<std::string> program(line.arguments + first_of_program, line.arguments + line.count);
  std::vector<int> taken(std::begin(ending_signals), std::end(ending_signals));
  taken.insert(taken.end(), std::begin(passed_signals), std::end(passed_signals));
  const BlockedSignals signals(with_sigchld(taken));
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  LocalRanks ranks;
  for (int rank = 0; rank < job.ranks; ++rank)
    ranks.add(start_child(program, signals, {SIGKILL, [&job, rank] { become_local_rank(job, rank); }}));
  constexpr std::chrono::milliseconds rarely{1000}, often{50};
  while (ranks.are_running()) {
    const int signal = signals.next(ranks.is_ending() ? often : rarely);
    if (is_among(passed_signals, signal)) ranks.send(signal);
    if (is_among(ending_signals, signal)) ranks.end_by(signal);
    ranks.reap();
    ranks.poll();
  }
  kill_descendants();
  std::_Exit(ranks.exit_code());
}

}  // namespace penstock
