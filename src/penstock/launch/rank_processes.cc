#include "penstock/launch/rank_processes.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/stop_signals.h"
#include "penstock/transport/joining/launch_environment.h"

namespace penstock::launch {
namespace {

constexpr int ending_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT}, passed_signals[] = {SIGUSR1, SIGUSR2};
constexpr std::chrono::seconds time_to_fail{1}, time_to_end{2};
constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

bool is_among(const auto& signals, int signal) {
  return std::find(std::begin(signals), std::end(signals), signal) != std::end(signals);
}

// Variables of a launcher in which this job runs: of Slurm or mpirun, for example, around a single process.
constexpr const char* foreign_variables[] = {"OMPI_COMM_WORLD_RANK",
                                             "OMPI_COMM_WORLD_SIZE",
                                             "OMPI_COMM_WORLD_LOCAL_RANK",
                                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                                             "PMIX_RANK",
                                             "PMI_RANK",
                                             "PMI_SIZE",
                                             "MPI_LOCALRANKID",
                                             "SLURM_PROCID",
                                             "GROUP_RANK",
                                             "TORCHELASTIC_USE_AGENT_STORE",
                                             "TORCHELASTIC_RESTART_COUNT",
                                             "ROLE_RANK",
                                             "PENSTOCK_RANK_COPIES"};

void set_rank_variables(int rank, int ranks, int port) {
  for (const char* name : foreign_variables) ::unsetenv(name);
  for (const char* name : {"RANK", "LOCAL_RANK"}) ::setenv(name, std::to_string(rank).c_str(), 1);
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) ::setenv(name, std::to_string(ranks).c_str(), 1);
  ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  ::setenv(joining::log_every_rank_variable, "1", 0);
}

/// The port at which the ranks meet. Throws Failure if there is none.
int free_port() {
  constexpr int least = 10'000, most_tries = 1'000;  // known services, which may be started later, have smaller ones
  int first_given = 32'768;                          // by the kernel: Linux's own default
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first_given;
  std::random_device random;
  for (int i = 0; i < most_tries; ++i) {
    const bool is_given = first_given <= least || i + 1 == most_tries;  // then the kernel chooses
    const int wanted = is_given ? 0 : std::uniform_int_distribution(least, first_given - 1)(random);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(wanted));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof(address);
    const bool is_free = ::bind(socket, generic, size) == 0 && ::getsockname(socket, generic, &size) == 0;
    ::close(socket);
    if (is_free) return ntohs(address.sin_port);
  }
  throw Failure(say("this machine has no free port at which the ranks could meet: ", std::strerror(errno)));
}

/// The signals that run_ranks() takes: not those that this process ignores.
sigset_t taken_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    struct sigaction action;
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_IGN) ::sigaddset(&set, signal);
  }
  ::sigaddset(&set, SIGCHLD);
  return set;
}

class RankProcesses {
 public:
  RankProcesses(const RankJob& job, const JobLogs& logs) : job_(job), logs_(logs) {
    for (const std::string& one : job.program) arguments_.push_back(const_cast<char*>(one.c_str()));
    arguments_.push_back(nullptr);
  }

  /// `mask`: the signals that the rank's program begins with blocked.
  void start(int rank, const sigset_t& mask) {
    const RankLogs files = logs_.of_rank(rank);
    const int out = create_log(files.out), err = files.err == files.out ? out : create_log(files.err);
    const pid_t parent = ::getpid(), child = ::fork();
    require<Failure>(child >= 0, "no process for rank ", rank, ": ", std::strerror(errno));
    if (child == 0) {
      ::setpgid(0, 0);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) std::_Exit(1);  // the parent died before PR_SET_PDEATHSIG took effect
      become(rank, out, err, mask);
    }
    ::setpgid(child, child);  // parent and child both call it, because either may run first
    ::close(out);
    if (err != out) ::close(err);
    running_[child] = rank;
  }

  bool are_running() const { return !running_.empty(); }
  bool are_ending() const { return term_at_ns_ != never || kill_at_ns_ != never; }

  void take(int signal) {
    if (is_among(passed_signals, signal)) send(signal);
    if (signal == SIGUSR1) end_.was_warned = true;
    if (!is_among(ending_signals, signal)) return;
    if (end_.received == 0) {
      end_.received = signal;
      received_at_ns_ = now_ns();
      send(SIGTERM);
      term_after(job_.grace);
    } else if (now_ns() - received_at_ns_ > std::chrono::nanoseconds(StopSignals::same_request).count()) {
      term_after(std::chrono::seconds(0));
    }
  }

  /// Records which ranks have ended.
  void reap() {
    std::vector<Ending> found;
    int status = 0;
    for (pid_t child = 0; (child = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto process = running_.find(child);
      if (process == running_.end()) continue;  // an orphan of a rank
      const int rank = process->second;
      found.push_back({.rank = rank,
                       .exit_code = WIFSIGNALED(status) ? 0 : WEXITSTATUS(status),
                       .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                       .was_signalled = signalled_.contains(rank)});
      running_.erase(process);
    }
    // Of ranks that have ended since the last call, those that a signal has ended are the cause.
    std::stable_partition(found.begin(), found.end(), [](const Ending& one) { return one.signal != 0; });
    for (const Ending& one : found) {
      logs_.note(say("rank ", one.rank, ": ", one.text()));
      end_.endings.push_back(one);
      if (one.failed() && !was_asked_for(one)) term_after(time_to_fail);
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

  RanksEnd take_end() { return std::move(end_); }

 private:
  [[noreturn]] void become(int rank, int out, int err, const sigset_t& mask) {
    set_rank_variables(rank, job_.ranks, port_);
    // A read from a terminal would stop this process, whose group is not in the foreground.
    if (rank != 0 || ::isatty(STDIN_FILENO) != 0) ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
    ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    ::execvp(arguments_[0], arguments_.data());
    const std::string reason = say("penstock: ", arguments_[0], ": cannot be started: ", std::strerror(errno), "\n");
    std::_Exit(::write(STDERR_FILENO, reason.data(), reason.size()) < 0 ? 126 : 127);
  }

  void send(int signal) {
    for (const auto& [process, rank] : running_) {
      ::kill(-process, signal);
      if (!is_among(passed_signals, signal) && signalled_.insert(rank).second)
        logs_.note(say("rank ", rank, ": told to end by signal ", signal, " (", ::strsignal(signal), ")"));
    }
  }

  void term_after(std::chrono::nanoseconds time) {
    if (kill_at_ns_ == never) term_at_ns_ = std::min(term_at_ns_, now_ns() + time.count());
  }

  bool was_asked_for(const Ending& ending) const {
    if (job_.is_ours) return is_polite_stop(ending.exit_code);
    return (end_.received != 0 && ending.status() == 128 + SIGTERM) ||
           (end_.was_warned && ending.status() == 128 + SIGUSR1);
  }

  const RankJob& job_;
  const JobLogs& logs_;
  std::vector<char*> arguments_;
  const int port_ = free_port();  // another one for each attempt: the store of the former one may still be closing
  std::map<pid_t, int> running_;  // the rank of each process
  std::set<int> signalled_;
  RanksEnd end_;
  std::int64_t received_at_ns_ = 0;
  std::int64_t term_at_ns_ = never;
  std::int64_t kill_at_ns_ = never;
};

/// Orphans become children of a subreaper; killing one exposes its children.
void kill_descendants() {
  while (true) {
    std::ifstream children(say("/proc/self/task/", ::getpid(), "/children"));
    pid_t child = 0;
    if (!(children >> child)) return;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
}

}  // namespace

std::string Ending::text() const {
  return signal != 0 ? say("signal ", signal, " (", ::strsignal(signal), ")") : say("exit code ", exit_code);
}

RanksEnd run_ranks(const RankJob& job, const JobLogs& logs) {
  const sigset_t signals = taken_signals();
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &signals, &before);
  ::signal(SIGCHLD, SIG_DFL);  // waitpid() finds no children of a process that ignores it
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  RankProcesses ranks(job, logs);
  for (int rank = 0; rank < job.ranks; ++rank) ranks.start(rank, before);
  std::jthread screen = show_logs(logs, job.ranks, job.shown);
  while (ranks.are_running()) {
    const timespec rarely{1, 0}, often{0, 50'000'000};
    ranks.take(::sigtimedwait(&signals, nullptr, ranks.are_ending() ? &often : &rarely));
    ranks.reap();
    ranks.poll();
  }
  kill_descendants();
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  RanksEnd end = ranks.take_end();
  // Pending ones would kill this process before it has reported how the ranks ended.
  if (end.received != 0)
    for (const int signal : ending_signals) ::signal(signal, SIG_IGN);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return end;
}

bool is_polite_stop(int exit_code) {
  const int codes[] = {75, 128 + SIGINT, 128 + SIGUSR1, 128 + SIGTERM};
  return is_among(codes, exit_code);
}

std::optional<Ending> first_failure(const std::vector<Ending>& endings) {
  for (const bool was_signalled : {false, true})
    for (const Ending& one : endings)
      if (one.is_own_failure() && one.was_signalled == was_signalled) return one;
  return std::nullopt;
}

int exit_code_of(const std::vector<Ending>& endings) {
  int before = 0, afterwards = 0;
  for (const Ending& one : endings) {
    if (!one.was_signalled) before = std::max(before, one.status());
    if (one.is_own_failure()) afterwards = std::max(afterwards, one.status());
  }
  return before != 0 ? before : afterwards;
}

}  // namespace penstock::launch
