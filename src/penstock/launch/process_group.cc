#include "penstock/launch/process_group.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <sstream>

#include "penstock/base/clock.h"
#include "penstock/base/stop_signals.h"
#include "penstock/launch/blocked_signals.h"
#include "penstock/launch/child_process.h"

namespace penstock {
namespace {

constexpr int other_signals[] = {SIGUSR1, SIGUSR2};

/// The signals to take: those that are forwarded, and that of a child's end.
std::vector<int> awaited_signals() {
  std::vector<int> signals(std::begin(ending_signals), std::end(ending_signals));
  signals.insert(signals.end(), std::begin(other_signals), std::end(other_signals));
  return with_sigchld(std::move(signals));
}

/// Reaps ended children; true if `program` is among them.
bool has_ended(pid_t program, int& status) {
  bool ended = false;
  int one = 0;
  for (pid_t child = 0; (child = ::waitpid(-1, &one, WNOHANG)) > 0;)
    if (child == program) {
      ended = true;
      status = one;
    }
  return ended;
}

bool is_one_of(const auto& signals, int signal) {
  return std::find(std::begin(signals), std::end(signals), signal) != std::end(signals);
}

/// The steps in which a program is ended.
class StepwiseEnd {
 public:
  StepwiseEnd(pid_t program, const EndingOptions& how) : program_(program), how_(how) {}

  /// Takes a terminating signal.
  void take(int signal) {
    if (step_ == Step::none) {
      const bool is_polite = how_.polite_signal != 0;
      ::kill(program_, is_polite ? how_.polite_signal : signal == SIGQUIT ? SIGTERM : signal);
      begin(is_polite ? Step::polite : Step::term, how_.grace);
    } else if (step_ == Step::polite && elapsed() > StopSignals::same_request) {
      term();
    }
  }

  /// Goes on to the next step when the time of this one is over.
  void poll() {
    if (step_ == Step::polite && how_.repeat.count() > 0 && elapsed() > how_.repeat * (repeated_ + 1)) {
      ++repeated_;
      ::kill(program_, how_.polite_signal);
    }
    if (step_ == Step::none || elapsed() <= time_) return;
    if (step_ == Step::polite)
      term();
    else
      ::kill(-program_, SIGKILL);
  }

 private:
  enum class Step { none, polite, term };

  void begin(Step step, std::chrono::milliseconds time) {
    step_ = step;
    time_ = time;
    begin_ns_ = now_ns();
  }
  void term() {
    ::kill(program_, SIGTERM);
    begin(Step::term, how_.grace_after_term);
  }
  std::chrono::nanoseconds elapsed() const { return std::chrono::nanoseconds(now_ns() - begin_ns_); }

  pid_t program_;
  const EndingOptions& how_;
  Step step_ = Step::none;
  std::chrono::milliseconds time_{0};
  std::int64_t begin_ns_ = 0;
  int repeated_ = 0;
};

}  // namespace

GroupEnd run_in_own_group(const std::vector<std::string>& arguments, const EndingOptions& how) {
  const BlockedSignals signals(awaited_signals());
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t program = start_child(arguments, signals, {});

  GroupEnd end{.process = program};
  const std::chrono::milliseconds pause(how.is_over ? 50 : 1000);
  StepwiseEnd ending(program, how);
  int status = 0;
  while (!has_ended(program, status)) {
    const int signal = signals.next(pause);
    if (is_one_of(other_signals, signal)) {
      if (end.forwarded == 0) end.forwarded = signal;
      ::kill(program, signal);
    }
    if (is_one_of(ending_signals, signal)) {
      if (end.received == 0) end.received = signal;
      ending.take(signal);
    }
    ending.poll();
    if (how.is_over && how.is_over()) ::kill(-program, SIGKILL);
  }
  kill_descendants();
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  // Pending ones would kill this process before it has said how the program ended.
  if (end.received != 0)
    for (const int signal : ending_signals) ::signal(signal, SIG_IGN);
  if (WIFSIGNALED(status))
    end.signal = WTERMSIG(status);
  else
    end.exit_code = WEXITSTATUS(status);
  return end;
}

std::string find_program(const std::string& name) {
  const auto usable = [](const std::string& path) {
    std::error_code ignored;
    return !std::filesystem::is_directory(path, ignored) && ::access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != name.npos) return usable(name) ? name : "";
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (const std::string found = (folder.empty() ? "." : folder) + "/" + name; usable(found)) return found;
  return "";
}

}  // namespace penstock
