#include "penstock/launch/process_group.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "penstock/base/error.h"

namespace penstock::process_group_test {
namespace {

constexpr std::chrono::seconds long_time{100};  // longer than any test

GroupEnd run_shell(const std::string& script, const EndingOptions& how = {.grace = long_time}) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_DFL);  // as in a new process
  return run_in_own_group({"sh", "-c", script}, how);
}

TEST(ProcessGroup, exit_codes_and_signals) {
  EXPECT_EQ(run_shell("exit 0").status(), 0);
  EXPECT_EQ(run_shell("exit 77").status(), 77);
  const GroupEnd killed = run_shell("kill -9 $$");
  EXPECT_EQ(killed.signal, SIGKILL);
  EXPECT_EQ(killed.status(), 137);
}

TEST(ProcessGroup, throws_for_a_missing_program) { EXPECT_THROW(run_in_own_group({"/no/such/program"}, {}), Failure); }

TEST(ProcessGroup, runs_in_a_process_group_of_its_own) {
  const std::string script = "test \"$(cut -d' ' -f5 /proc/self/stat)\" != " + std::to_string(::getpgrp());
  EXPECT_EQ(run_shell(script).status(), 0);
}

TEST(ProcessGroup, forwards_terminating_signals) {
  for (const auto& [sent, got] : {std::pair{"INT", SIGINT}, {"TERM", SIGTERM}, {"HUP", SIGHUP}}) {
    // The program signals this process as soon as it is ready to receive signals.
    const std::string script = std::string("trap 'exit 5' ") + sent + "; kill -" + sent + " $PPID; sleep 100 & wait";
    const GroupEnd end = run_shell(script);
    EXPECT_EQ(end.exit_code, 5) << sent;
    EXPECT_EQ(end.received, got);
  }
}

TEST(ProcessGroup, forwards_other_signals) {
  const GroupEnd end = run_shell("trap 'exit 6' USR1; kill -USR1 $PPID; sleep 100 & wait");
  EXPECT_EQ(end.exit_code, 6);
  EXPECT_EQ(end.received, 0);
}

TEST(ProcessGroup, kills_a_program_that_does_not_end) {
  const GroupEnd end = run_shell("trap '' TERM; kill -TERM $PPID; while :; do sleep 0.1; done", {});
  EXPECT_EQ(end.signal, SIGKILL);
  EXPECT_EQ(end.received, SIGTERM);
}

const EndingOptions politely{.polite_signal = SIGURG, .grace = long_time};

TEST(ProcessGroup, kills_a_program_that_is_over) {
  int asked = 0;
  const GroupEnd end = run_shell("sleep 100 & wait", {.is_over = [&] { return ++asked >= 3; }});
  EXPECT_EQ(end.signal, SIGKILL);
  EXPECT_EQ(end.received, 0);
  EXPECT_GE(asked, 3);
}

TEST(ProcessGroup, asks_politely_first) {
  for (const auto& [sent, got] : {std::pair{"INT", SIGINT}, {"TERM", SIGTERM}, {"HUP", SIGHUP}}) {
    // Half a second of work after the request; SIGTERM would end it with 6.
    const std::string script = std::string("trap 'exit 6' TERM INT HUP; trap 'sleep 0.5; exit 5' URG; kill -") + sent +
                               " $PPID; while :; do sleep 0.01; done";
    const GroupEnd end = run_shell(script, politely);
    EXPECT_EQ(end.exit_code, 5) << sent;
    EXPECT_EQ(end.received, got);
  }
}

TEST(ProcessGroup, a_later_second_signal_ends_the_program) {
  // The program ignores the polite request, and asks to be ended again and again.
  const GroupEnd end =
      run_shell("trap '' URG; trap 'exit 6' TERM; while :; do kill -INT $PPID; sleep 0.05; done", politely);
  EXPECT_EQ(end.exit_code, 6);
  EXPECT_EQ(end.received, SIGINT);
}

TEST(ProcessGroup, signals_after_the_end_are_ignored) {
  const GroupEnd end = run_shell("trap 'exit 5' TERM; kill -TERM $PPID; sleep 100 & wait");
  EXPECT_EQ(end.exit_code, 5);
  ::raise(SIGTERM);
  ::raise(SIGINT);
}

TEST(ProcessGroup, repeats_a_polite_signal) {
  EndingOptions repeating = politely;
  repeating.repeat = std::chrono::milliseconds(1);
  const std::string script =
      "n=0; trap 'n=$((n + 1)); [ $n -lt 2 ] || exit 5' URG; kill -TERM $PPID; while :; do sleep 0.01; done";
  EXPECT_EQ(run_shell(script, repeating).exit_code, 5);
}

TEST(ProcessGroup, after_its_grace_a_program_is_terminated_and_then_killed) {
  EndingOptions at_once = politely;
  at_once.grace = std::chrono::milliseconds(0);
  EXPECT_EQ(
      run_shell("trap '' URG; trap 'exit 6' TERM; kill -INT $PPID; while :; do sleep 0.01; done", at_once).exit_code,
      6);
  at_once.grace_after_term = std::chrono::milliseconds(0);
  EXPECT_EQ(run_shell("trap '' URG TERM; kill -INT $PPID; while :; do sleep 0.01; done", at_once).signal, SIGKILL);
}

TEST(ProcessGroup, kills_remaining_descendants) {
  const std::string path = testing::TempDir() + "/left_" + std::to_string(::getpid());
  ASSERT_EQ(
      run_shell("setsid sh -c 'echo $$ > " + path + "; exec sleep 100' & while ! test -s " + path + "; do :; done")
          .status(),
      0);
  pid_t left = 0;
  std::ifstream(path) >> left;
  ASSERT_GT(left, 1);
  EXPECT_EQ(::kill(left, 0), -1) << "process " << left << " is still there";
  std::filesystem::remove(path);
}

TEST(ProcessGroup, finds_programs_as_a_shell_does) {
  EXPECT_EQ(find_program("/bin/sh"), "/bin/sh");
  EXPECT_TRUE(find_program("sh").ends_with("/sh"));
  EXPECT_EQ(find_program("no-such-program"), "");
  EXPECT_EQ(find_program("/bin"), "") << "a folder";
  EXPECT_EQ(find_program("/etc/passwd"), "") << "not executable";
}

}  // namespace
}  // namespace penstock::process_group_test
