#include "penstock/launch/rank_processes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace penstock::rank_processes_test {
namespace {

using namespace launch;
namespace fs = std::filesystem;

TEST(ExitCode, largest_status_of_own_failures) {
  EXPECT_EQ(exit_code_of({}), 0);
  EXPECT_EQ(exit_code_of({{0, 0, 0}, {1, 0, 0}}), 0);
  EXPECT_EQ(exit_code_of({{1, 3, 0}, {0, 0, 15, true}, {2, 0, 9, true}}), 3) << "launch ended the others";
  EXPECT_EQ(exit_code_of({{1, 1, 0}, {0, 4, 0}}), 4);
  EXPECT_EQ(exit_code_of({{1, 1, 0}, {0, 0, 11}}), 139) << "nobody sends SIGSEGV";
  EXPECT_EQ(exit_code_of({{0, 0, 9}, {1, 0, 15, true}}), 137);
  EXPECT_EQ(exit_code_of({{0, 0, 0}, {1, 0, 15}}), 143) << "nothing had failed before";
}

TEST(FirstFailure, ignores_signals_of_the_clean_up) {
  const Ending told_to_end{.rank = 0, .signal = 15, .was_signalled = true};
  const Ending ends_in_its_own_way{.rank = 1, .exit_code = 77, .was_signalled = true};
  const Ending by_itself{.rank = 2, .exit_code = 3};
  EXPECT_EQ(first_failure({}), std::nullopt);
  EXPECT_EQ(first_failure({told_to_end, {.rank = 1}}), std::nullopt);
  EXPECT_EQ(first_failure({told_to_end, ends_in_its_own_way, by_itself}), by_itself);
  EXPECT_EQ(first_failure({told_to_end, ends_in_its_own_way}), ends_in_its_own_way);
  EXPECT_EQ(exit_code_of({told_to_end}), 0);
  EXPECT_EQ(exit_code_of({told_to_end, ends_in_its_own_way, by_itself}), 3);
  EXPECT_EQ(exit_code_of({told_to_end, ends_in_its_own_way}), 77);
}

TEST(PoliteStop, codes) {
  for (const int code : {75, 130, 138, 143}) EXPECT_TRUE(is_polite_stop(code)) << code;
  for (const int code : {0, 1, 2, 137, 139}) EXPECT_FALSE(is_polite_stop(code)) << code;
}

class RunRanks : public testing::Test {
 protected:
  void SetUp() override {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_DFL);  // as in a new process
  }
  void TearDown() override { fs::remove_all(folder_); }

  RanksEnd run_shell(const std::string& script, RankJob job = {}) {
    job.program = {"sh", "-c", script};
    job.ranks = std::max(1, job.ranks);
    job.shown = ShownRanks::none;
    logs_.push_back(JobLogs::claim(folder_, LogLayout::rank));
    return run_ranks(job, logs_.back());
  }
  /// Of the last run.
  std::string output_of(int rank) {
    std::ifstream file(logs_.back().of_rank(rank).out);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static constexpr std::chrono::seconds long_time_{100};  // longer than any test
  const fs::path folder_ = fs::path(testing::TempDir()) / ("run_ranks_" + std::to_string(::getpid()));
  std::vector<JobLogs> logs_;
};

TEST_F(RunRanks, exit_codes_and_signals) {
  EXPECT_EQ(run_shell("exit 77").endings, (std::vector<Ending>{{.exit_code = 77}}));
  EXPECT_EQ(run_shell("kill -9 $$").endings, (std::vector<Ending>{{.signal = SIGKILL}}));
  EXPECT_EQ(run_shell("exit 0", {.ranks = 3}).endings.size(), 3U);
}

TEST_F(RunRanks, a_rank_has_a_process_group_of_its_own) {
  const std::string script = "test \"$(cut -d' ' -f5 /proc/self/stat)\" != " + std::to_string(::getpgrp());
  EXPECT_EQ(run_shell(script).endings.front().status(), 0);
}

TEST_F(RunRanks, terminating_signals_reach_the_ranks_as_sigterm) {
  for (const auto& [sent, got] : {std::pair{"INT", SIGINT}, {"TERM", SIGTERM}, {"HUP", SIGHUP}}) {
    SetUp();  // the run before has ignored the signals, so that none ends its last lines
    // The rank signals this process as soon as it is ready to receive the answer; then it takes half a second.
    const std::string script = std::string("trap 'exit 6' INT HUP; trap 'sleep 0.5; exit 5' TERM; kill -") + sent +
                               " $PPID; while :; do sleep 0.01; done";
    const RanksEnd end = run_shell(script, {.grace = long_time_});
    EXPECT_EQ(end.endings.front().exit_code, 5) << sent;
    EXPECT_EQ(end.received, got);
  }
}

TEST_F(RunRanks, other_signals_are_passed_on) {
  const RanksEnd end = run_shell("trap 'exit 6' USR1; kill -USR1 $PPID; sleep 100 & wait");
  EXPECT_EQ(end.endings.front().exit_code, 6);
  EXPECT_EQ(end.received, 0);
  EXPECT_TRUE(end.was_warned);
}

TEST_F(RunRanks, after_the_grace_ranks_are_killed) {
  const RanksEnd end =
      run_shell("trap '' TERM; kill -TERM $PPID; while :; do sleep 0.1; done", {.grace = std::chrono::milliseconds(0)});
  EXPECT_EQ(end.endings.front().signal, SIGKILL);
  EXPECT_EQ(end.received, SIGTERM);
}

TEST_F(RunRanks, a_later_second_signal_ends_the_grace) {
  const RanksEnd end = run_shell("trap '' TERM; while :; do kill -INT $PPID; sleep 0.05; done", {.grace = long_time_});
  EXPECT_EQ(end.endings.front().signal, SIGKILL);
  EXPECT_EQ(end.received, SIGINT);
}

TEST_F(RunRanks, an_ending_that_was_asked_for_ends_no_other_rank) {
  // Rank 0 ends at once, rank 1 needs longer than the others have after a failure.
  const std::string script =
      "[ $RANK = 0 ] && { trap 'exit 143' TERM; while [ ! -e " + folder_.string() +
      "/ready ]; do sleep 0.01; done; kill -TERM $PPID; } || { trap 'sleep 4; echo saved; exit 143' TERM; touch " +
      folder_.string() + "/ready; }; while :; do sleep 0.01; done";
  for (const bool is_ours : {false, true}) {
    SetUp();  // as above
    fs::remove(folder_ / "ready");
    run_shell(script, {.is_ours = is_ours, .ranks = 2, .grace = long_time_});
    EXPECT_EQ(output_of(1), "saved\n") << is_ours;
  }
}

TEST_F(RunRanks, signals_after_the_end_are_ignored) {
  EXPECT_EQ(run_shell("trap 'exit 5' TERM; kill -TERM $PPID; sleep 100 & wait").endings.front().exit_code, 5);
  ::raise(SIGTERM);
  ::raise(SIGINT);
}

TEST_F(RunRanks, remaining_descendants_are_killed) {
  const std::string path = testing::TempDir() + "/left_" + std::to_string(::getpid());
  run_shell("setsid sh -c 'echo $$ > " + path + "; exec sleep 100' & while ! test -s " + path + "; do :; done");
  pid_t left = 0;
  std::ifstream(path) >> left;
  ASSERT_GT(left, 1);
  EXPECT_EQ(::kill(left, 0), -1) << "process " << left << " is still there";
  fs::remove(path);
}

}  // namespace
}  // namespace penstock::rank_processes_test
