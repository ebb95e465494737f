#include "penstock/base/stop_signals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>

#include "penstock/base/clock.h"

namespace penstock::stop_signals_test {
namespace {

/// Runs `program` in a process of its own, without core files, and returns its status as waitpid reports it.
template <class Program>
int status_of(Program&& program) {
  const pid_t child = ::fork();
  if (child == 0) {
    program();
    std::_Exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

void (*action_of(int signal))(int) {
  struct sigaction action = {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

TEST(StopSignals, the_first_signal_is_noted) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    const StopSignals signals;
    EXPECT_EQ(StopSignals::received(), std::nullopt);
    ::raise(signal);
    EXPECT_EQ(StopSignals::received(), signal);
  }
  EXPECT_EQ(StopSignals::received(), std::nullopt) << "without an object";
}

TEST(StopSignals, a_later_signal_ends_the_process_at_once) {
  for (const int second : {SIGTERM, SIGINT, SIGUSR1}) {
    const int status = status_of([&] {
      const StopSignals signals;
      ::raise(SIGTERM);
      const std::int64_t after_first_ns = now_ns();
      while (std::chrono::nanoseconds(now_ns() - after_first_ns) <= StopSignals::same_request) {
      }
      ::raise(second);
    });
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), second);
  }
}

TEST(StopSignals, signals_in_quick_succession_are_one_request) {
  int status = 0;
  std::int64_t begin_ns = 0;
  // A process that was suspended between its two signals tells nothing: then once more.
  do {
    begin_ns = now_ns();
    status = status_of([&] {
      const StopSignals signals;
      ::raise(SIGTERM);
      ::raise(SIGTERM);
      ::raise(SIGINT);
      std::_Exit(StopSignals::received() == SIGTERM ? 0 : 1);
    });
  } while (std::chrono::nanoseconds(now_ns() - begin_ns) > StopSignals::same_request);
  ASSERT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(StopSignals, signals_of_other_threads_and_processes_are_noted) {
  const int status = status_of([] {
    const StopSignals signals;
    const pid_t parent = ::getpid();
    status_of([&] { ::kill(parent, SIGUSR1); });
    while (!StopSignals::received()) {
    }
    std::_Exit(*StopSignals::received() == SIGUSR1 ? 0 : 1);
  });
  EXPECT_EQ(status, 0);
}

TEST(StopSignals, former_handlers_are_restored) {
  static int taken = 0;
  const auto former = ::signal(SIGUSR1, [](int) { ++taken; });
  {
    const StopSignals signals;
    ::raise(SIGUSR1);
    EXPECT_EQ(taken, 0);
  }
  ::raise(SIGUSR1);
  EXPECT_EQ(taken, 1);
  ::signal(SIGUSR1, former);
  EXPECT_EQ(action_of(SIGTERM), SIG_DFL);
}

TEST(StopSignals, the_last_object_restores) {
  auto first = std::make_unique<StopSignals>();
  auto second = std::make_unique<StopSignals>();
  ::raise(SIGTERM);
  first.reset();
  EXPECT_EQ(StopSignals::received(), SIGTERM) << "forgotten while an object lives";
  EXPECT_NE(action_of(SIGTERM), SIG_DFL);
  second.reset();
  EXPECT_EQ(action_of(SIGTERM), SIG_DFL);
}

TEST(StopSignals, ignored_signals_stay_ignored) {
  const auto former = ::signal(SIGINT, SIG_IGN);
  {
    const StopSignals signals;
    ::raise(SIGINT);
    EXPECT_EQ(StopSignals::received(), std::nullopt);
    ::raise(SIGTERM);
    EXPECT_EQ(StopSignals::received(), SIGTERM);
  }
  EXPECT_EQ(action_of(SIGINT), SIG_IGN);
  ::signal(SIGINT, former);
}

}  // namespace
}  // namespace penstock::stop_signals_test
