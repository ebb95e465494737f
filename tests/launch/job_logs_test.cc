#include "penstock/launch/job_logs.h"

#include <gtest/gtest.h>

#include <fstream>

#include "penstock/base/error.h"
#include "tests/support/temporary_folder.h"

namespace penstock::job_logs_test {
namespace {

using namespace launch;
namespace fs = std::filesystem;

class JobLogsTest : public testing::Test {
 protected:
  void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  const test::TemporaryFolder made_{"job_logs"};
  const fs::path folder_ = made_.string();
};

TEST_F(JobLogsTest, attempts_are_numbered_after_the_highest) {
  const fs::path logs = folder_ / "made" / "on the way";
  EXPECT_EQ(JobLogs::claim(logs, LogLayout::rank).shown(), logs / "1");
  EXPECT_EQ(JobLogs::claim(logs, LogLayout::rank).shown(), logs / "2");
  fs::create_directory(logs / "7");
  fs::create_directory(logs / "08");
  fs::create_directory(logs / "x9");
  fs::remove(logs / "1");
  EXPECT_EQ(JobLogs::claim(logs, LogLayout::rank).shown(), logs / "8");
}

TEST_F(JobLogsTest, attempts_of_the_layout_worker) {
  EXPECT_EQ(JobLogs::claim(folder_, LogLayout::worker).of_rank(3).out, folder_ / "worker_3.log");
  write(folder_ / "worker_0.4.log", "");
  const JobLogs next = JobLogs::claim(folder_, LogLayout::worker);
  EXPECT_EQ(next.of_rank(3).out, folder_ / "worker_3.5.log");
  EXPECT_EQ(next.of_rank(3).err, next.of_rank(3).out) << "both streams in one file";
  EXPECT_EQ(next.journal(), folder_ / "launch.5.log");
}

TEST_F(JobLogsTest, existing_logs_are_not_touched) {
  write(folder_ / "worker_0.log", "of another program");
  EXPECT_EQ(JobLogs::claim(folder_, LogLayout::worker).shown(), folder_ / "worker_N.2.log");
}

TEST_F(JobLogsTest, paths_of_the_layout_rank) {
  fs::create_directory(folder_ / "11");
  const JobLogs logs = JobLogs::claim(folder_, LogLayout::rank);
  EXPECT_EQ(logs.of_rank(10).out, folder_ / "12" / "rank.10" / "stdout");
  EXPECT_EQ(logs.of_rank(10).err, folder_ / "12" / "rank.10" / "stderr");
  EXPECT_EQ(logs.journal(), folder_ / "12" / "launch.log");
}

TEST_F(JobLogsTest, refuses_a_folder_that_cannot_be_made) {
  write(folder_ / "file", "");
  EXPECT_THROW(JobLogs::claim(folder_ / "file", LogLayout::rank), ConfigError);
  EXPECT_THROW(JobLogs::claim(folder_ / "file" / "x", LogLayout::worker), ConfigError);
}

TEST_F(JobLogsTest, lines_of_launch_log) {
  const JobLogs logs = JobLogs::claim(folder_, LogLayout::rank);
  logs.note("rank 0: signal 9 (Killed)");
  logs.note("job: exit code 3");
  EXPECT_EQ(last_lines(logs.journal(), 3), (std::vector<std::string>{"rank 0: signal 9 (Killed)", "job: exit code 3"}));
  fs::remove_all(folder_ / "1");
  EXPECT_THROW(logs.note("job: exit code 0"), Failure);
}

TEST_F(JobLogsTest, last_lines) {
  const fs::path path = folder_ / "log";
  EXPECT_TRUE(last_lines(path, 3).empty());
  write(path, "");
  EXPECT_TRUE(last_lines(path, 3).empty());
  write(path, "a\n\nb");
  EXPECT_EQ(last_lines(path, 3), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(last_lines(path, 1), (std::vector<std::string>{"b"}));
  std::string much;
  for (int i = 0; i < 100000; ++i) much += std::to_string(i) + "\n";
  write(path, much);
  EXPECT_EQ(last_lines(path, 2), (std::vector<std::string>{"99998", "99999"}));
}

}  // namespace
}  // namespace penstock::job_logs_test
