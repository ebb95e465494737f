#include "penstock/launch/captured_run.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"

namespace penstock::captured_run_test {
namespace {

constexpr std::chrono::minutes long_time{10};  // longer than any test

CapturedRun run_shell(const std::string& script, std::chrono::milliseconds limit = long_time) {
  return run_captured({"sh", "-c", script}, limit);
}

TEST(CapturedRun, output_and_exit_code) {
  const CapturedRun run = run_shell("echo one; echo two; exit 3");
  EXPECT_EQ(run.output, "one\ntwo\n");
  EXPECT_EQ(run.status, 3);
  EXPECT_FALSE(run.is_late);
  EXPECT_EQ(run_shell("kill -9 $$").status, 137);
}

TEST(CapturedRun, more_output_than_a_pipe_holds) {
  EXPECT_EQ(run_shell("head -c 300000 /dev/zero").output, std::string(300000, '\0'));
}

TEST(CapturedRun, standard_input_is_empty) { EXPECT_EQ(run_shell("cat; echo end").output, "end\n"); }

TEST(CapturedRun, a_late_program_is_killed_with_its_children) {
  const CapturedRun run = run_shell("echo begun; sleep 1000 & sleep 1000", std::chrono::milliseconds(0));
  EXPECT_TRUE(run.is_late);
  EXPECT_EQ(run.status, 137);
}

TEST(CapturedRun, a_late_program_may_have_closed_its_output) {
  const CapturedRun run = run_shell("echo begun; exec >&-; sleep 1000", std::chrono::seconds(1));
  EXPECT_TRUE(run.is_late);
  EXPECT_EQ(run.output, "begun\n");
  EXPECT_EQ(run.status, 137);
}

TEST(CapturedRun, throws_for_a_missing_program) {
  EXPECT_THROW(run_captured({"/no/such/program"}, long_time), Failure);
}

}  // namespace
}  // namespace penstock::captured_run_test
