#include "penstock/launch/keep_rank.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <list>
#include <system_error>
#include <utility>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/launch/blocked_signals.h"
#include "penstock/launch/follow_log.h"
#include "penstock/launch/process_group.h"
#include "penstock/launch/temporary_files.h"
#include "penstock/transport/launch_environment.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

// Positions of the arguments on the command line.
constexpr const char* layout_names[] = {"rank", "worker"};
constexpr const char* shown_names[] = {"none", "first"};

template <std::size_t Count>
int index_of(const char* const (&names)[Count], std::string_view name) {
  for (std::size_t i = 0; i < Count; ++i)
    if (name == names[i]) return static_cast<int>(i);
  throw ConfigError(say("'", name, "': ", keep_rank_verb, " is for internal use by penstock launch"));
}

/// The parsed result of supervisor_arguments().
struct SupervisedRank {
  JobLogs logs;
  bool show_first = false;
  char** program = nullptr;  // null-terminated
};

SupervisedRank read_supervisor_arguments(const CommandLine& line) {
  require<ConfigError>(line.count > 7 && std::string_view(line.arguments[6]) == "--", keep_rank_verb,
                       " is for internal use by penstock launch");
  const auto layout = static_cast<LogLayout>(index_of(layout_names, line.arguments[3]));
  const bool show_first = index_of(shown_names, line.arguments[5]) == 1;
  return {JobLogs(line.arguments[2], layout, std::atoi(line.arguments[4])), show_first, line.arguments + 7};
}

/// The launchers' variables for a rank. Torchrun's is that of our own launcher, which unsets the others.
constexpr const char* open_mpi_rank = "OMPI_COMM_WORLD_RANK";
constexpr const char* torchrun_rank = "RANK";
constexpr const char* rank_variables[] = {open_mpi_rank, "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", torchrun_rank};

const char* own_rank_variable() {
  for (const char* name : rank_variables)
    if (std::getenv(name)) return name;
  throw ConfigError(
      "the rank of this process is unknown: OMPI_COMM_WORLD_RANK, PMIX_RANK, PMI_RANK, SLURM_PROCID and RANK are all "
      "unset");
}

int own_rank() { return std::atoi(std::getenv(own_rank_variable())); }

/// Creates a new file in append mode, so that both streams may write to it.
int create_log(const fs::path& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  require<Failure>(file >= 0, path.string(), ": cannot be written: ", std::strerror(errno));
  return file;
}

/// Runs in the child: executes the rank's program.
[[noreturn]] void become_rank(char** program, const BlockedSignals& signals, pid_t parent, int out, int err) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) std::_Exit(1);  // the parent died before PR_SET_PDEATHSIG took effect
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::signal(SIGPIPE, SIG_DFL);
  signals.restore();
  ::setenv(log_every_rank_variable, "1", 0);
  ::execvp(program[0], program);
  const std::string reason = say("penstock: ", program[0], ": cannot be started: ", std::strerror(errno), "\n");
  if (::write(STDERR_FILENO, reason.data(), reason.size()) < 0) std::_Exit(126);
  std::_Exit(127);
}

/// Open MPI kills its ranks a second after SIGTERM, which it sends a second after the failure of a rank; our own
/// launcher gives them more time. A verb of penstock notes SIGTERM for the end of its step, which does not come any
/// more without the other ranks: so it is killed earlier, and the job ends within two seconds. Other programs, and
/// users who set Open MPI's time, have that.
constexpr std::chrono::milliseconds time_after_term{500};

bool is_own_program(const char* program) {
  std::error_code unknown;
  return fs::equivalent(program, "/proc/self/exe", unknown);
}

bool kills_late() {
  const std::string_view launcher = own_rank_variable();
  if (launcher == open_mpi_rank) return std::getenv("OMPI_MCA_odls_base_sigkill_timeout") != nullptr;
  return launcher != torchrun_rank;
}

/// Takes the signals that reach this process. The launcher signals the rank's whole process group, so the rank has
/// received them too, except for polite_stop_signal, which is translated here.
class SignalRecorder {
 public:
  SignalRecorder(const SupervisedRank& supervised, int rank, pid_t process)
      : logs_(supervised.logs), rank_(rank), process_(process), is_ours_(is_own_program(supervised.program[0])) {}

  /// Records the first terminating signal in the journal: a rank that ends after it may have been ended as part of the
  /// clean-up, and is then not the cause of the failure.
  void take(int signal) {
    if (signal == polite_stop_signal && !std::exchange(is_asked_to_stop_, true)) signal_rank(SIGTERM);
    if (signal == SIGUSR1) is_asked_by_usr1_ = true;
    const bool is_to_end = signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
    if (signal == SIGTERM && is_ours_ && !kills_late() && !is_asked_to_stop_ && kill_at_ns_ == 0)
      kill_at_ns_ = now_ns() + std::chrono::nanoseconds(time_after_term).count();
    if (is_to_end && !std::exchange(is_recorded_, true)) logs_.note_signal(rank_, signal);
  }

  /// Kills the rank if its time is over.
  void poll() const {
    if (is_hurried() && now_ns() >= kill_at_ns_) ::kill(process_, SIGKILL);
  }
  bool is_hurried() const { return kill_at_ns_ != 0; }

  /// Whether the rank ended because it was asked to, so that the launcher has no reason to end the others, which may
  /// still write a checkpoint.
  bool has_stopped_as_asked(const Ending& ending) const {
    if (is_ours_) return is_polite_stop(ending.exit_code);
    return (is_asked_to_stop_ && ending.exit_code == 128 + SIGTERM) ||
           (is_asked_by_usr1_ && ending.exit_code == 128 + SIGUSR1);
  }

 private:
  void signal_rank(int signal) const {
    // Its descendants too, if the launcher made a process group for the rank; this process leaves the signal pending.
    ::kill(::getpgrp() == ::getpid() ? 0 : process_, signal);
  }

  const JobLogs& logs_;
  int rank_;
  pid_t process_;
  bool is_ours_;                 // a verb of this program
  std::int64_t kill_at_ns_ = 0;  // 0: never
  bool is_recorded_ = false;
  bool is_asked_to_stop_ = false;
  bool is_asked_by_usr1_ = false;
};

/// Waits for the rank and copies its logs as they grow.
int await(pid_t rank, const BlockedSignals& signals, SignalRecorder& recorder, std::list<LogFollower>& followers) {
  constexpr std::chrono::milliseconds none{0}, second{1000};
  for (int status = 0;;) {
    const bool ended = ::waitpid(rank, &status, WNOHANG) == rank;
    // Even after the rank has ended: a signal to the whole group is pending here before waitpid reports the rank's
    // death.
    bool may_have_ended = false;  // since waitpid
    while (const int signal = signals.next(none)) {
      may_have_ended |= signal == SIGCHLD;
      recorder.take(signal);
    }
    for (LogFollower& follower : followers) follower.copy_new(ended);
    if (ended) return status;
    recorder.poll();
    if (!may_have_ended)
      recorder.take(signals.next(followers.empty() && !recorder.is_hurried() ? second : polling_interval));
  }
}

void follow(const RankLogs& logs, std::list<LogFollower>& followers) {
  followers.emplace_back(logs.out, STDOUT_FILENO, "");
  if (logs.err != logs.out) followers.emplace_back(logs.err, STDERR_FILENO, "");
}

[[noreturn]] void end_as(const Ending& ending) {
  if (ending.signal != 0) {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);  // the rank has written a core file already, if that is enabled
    ::signal(ending.signal, SIG_DFL);
    sigset_t own;
    ::sigemptyset(&own);
    ::sigaddset(&own, ending.signal);
    ::raise(ending.signal);
    ::sigprocmask(SIG_UNBLOCK, &own, nullptr);
  }
  std::_Exit(ending.status());
}

}  // namespace

std::vector<std::string> supervisor_arguments(const std::string& self, const JobLogs& logs, bool show_first,
                                              const std::vector<std::string>& program) {
  std::vector<std::string> arguments{self,
                                     keep_rank_verb,
                                     fs::absolute(logs.folder()).string(),
                                     layout_names[static_cast<int>(logs.layout())],
                                     std::to_string(logs.attempt()),
                                     shown_names[show_first ? 1 : 0],
                                     "--"};
  arguments.insert(arguments.end(), program.begin(), program.end());
  return arguments;
}

void keep_rank(const CommandLine& line) {
  const SupervisedRank supervised = read_supervisor_arguments(line);
  const int rank = own_rank();
  const RankLogs logs = supervised.logs.of_rank(rank);
  std::error_code problem;
  fs::create_directories(logs.out.parent_path(), problem);
  require<Failure>(!problem, logs.out.parent_path().string(), ": cannot be made: ", problem.message());
  const int out = create_log(logs.out);
  const int err = logs.err == logs.out ? out : create_log(logs.err);

  // The launcher signals the whole process group of the rank; this process only has to outlive the rank.
  const BlockedSignals signals({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, polite_stop_signal});
  ::signal(SIGPIPE, SIG_IGN);  // a closed screen must not end the job
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);

  note_temporary_files(supervised.logs);
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  require<Failure>(child >= 0, "no process for rank ", rank, ": ", std::strerror(errno));
  if (child == 0) become_rank(supervised.program, signals, self, out, err);
  std::list<LogFollower> followers;
  if (supervised.show_first && rank == 0) follow(logs, followers);
  SignalRecorder recorder(supervised, rank, child);
  const int status = await(child, signals, recorder, followers);
  const Ending ending{.rank = rank,
                      .exit_code = WIFSIGNALED(status) ? 0 : WEXITSTATUS(status),
                      .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
  supervised.logs.note(ending);
  if (recorder.has_stopped_as_asked(ending)) std::_Exit(0);
  end_as(ending);
}

}  // namespace penstock
