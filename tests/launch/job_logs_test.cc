#include "penstock/launch/job_logs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "penstock/base/error.h"

namespace penstock::job_logs_test {
namespace {

namespace fs = std::filesystem;

class JobLogsTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / ("job_logs_" + std::to_string(::getpid()));
};

TEST_F(JobLogsTest, attempts_are_numbered_after_the_highest) {
  const fs::path logs = folder_ / "made" / "on the way";
  EXPECT_EQ(JobLogs::claim(logs, LogLayout::rank).attempt(), 1);
  EXPECT_EQ(JobLogs::claim(logs, LogLayout::rank).attempt(), 2);
  fs::create_directory(logs / "7");
  fs::create_directory(logs / "08");
  fs::create_directory(logs / "x9");
  fs::remove(logs / "1");
  EXPECT_EQ(JobLogs::claim(logs, LogLayout::rank).attempt(), 8);
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
  EXPECT_EQ(JobLogs::claim(folder_, LogLayout::worker).attempt(), 2);
}

TEST_F(JobLogsTest, paths_of_the_layout_rank) {
  const JobLogs logs(folder_, LogLayout::rank, 12);
  EXPECT_EQ(logs.of_rank(10).out, folder_ / "12" / "rank.10" / "stdout");
  EXPECT_EQ(logs.of_rank(10).err, folder_ / "12" / "rank.10" / "stderr");
  EXPECT_EQ(logs.journal(), folder_ / "12" / "launch.log");
}

TEST_F(JobLogsTest, refuses_a_folder_that_cannot_be_made) {
  write(folder_ / "file", "");
  EXPECT_THROW(JobLogs::claim(folder_ / "file", LogLayout::rank), ConfigError);
  EXPECT_THROW(JobLogs::claim(folder_ / "file" / "x", LogLayout::worker), ConfigError);
}

TEST_F(JobLogsTest, journal_reads_back_endings) {
  const JobLogs logs = JobLogs::claim(folder_, LogLayout::rank);
  EXPECT_TRUE(logs.endings().empty());
  logs.note("mpirun -n 2 echo rank 5: exit code 5");
  logs.note(Ending{1, 3, 0});
  logs.note(Ending{0, 0, 9});
  logs.note("job: exit code 3");
  EXPECT_EQ(logs.endings(), (std::vector<Ending>{{1, 3, 0}, {0, 0, 9}}));
  EXPECT_EQ(last_lines(logs.journal(), 2), (std::vector<std::string>{"rank 0: signal 9 (Killed)", "job: exit code 3"}));
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

TEST(ExitCode, largest_status_of_own_failures) {
  EXPECT_EQ(exit_code_of({}), 0);
  EXPECT_EQ(exit_code_of({{0, 0, 0}, {1, 0, 0}}), 0);
  EXPECT_EQ(exit_code_of({{1, 3, 0}, {0, 0, 15}, {2, 0, 9}}), 3) << "the launcher ended the others";
  EXPECT_EQ(exit_code_of({{1, 1, 0}, {0, 4, 0}}), 4);
  EXPECT_EQ(exit_code_of({{1, 1, 0}, {0, 0, 11}}), 139) << "nobody sends SIGSEGV";
  EXPECT_EQ(exit_code_of({{0, 0, 9}, {1, 0, 15}}), 137);
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

TEST(JobLogs, records_signals_and_finds_vanished_ranks) {
  const fs::path folder = fs::path(::testing::TempDir()) / "told_to_end";
  fs::remove_all(folder);
  const JobLogs logs = JobLogs::claim(folder, LogLayout::rank);
  for (const int rank : {0, 1, 2}) {
    fs::create_directories(logs.of_rank(rank).out.parent_path());
    std::ofstream(logs.of_rank(rank).out) << "hello\n";
  }
  logs.note(Ending{.rank = 1, .exit_code = 3});
  EXPECT_EQ(logs.vanished(4), (std::vector<int>{0, 2})) << "rank 3 is on another host";
  logs.note_signal(0, 15);
  EXPECT_EQ(logs.vanished(4), std::vector<int>{2});
  logs.note(Ending{.rank = 0, .signal = 15});
  const std::vector<Ending> expected{{.rank = 1, .exit_code = 3}, {.rank = 0, .signal = 15, .was_signalled = true}};
  EXPECT_EQ(logs.endings(), expected);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace penstock::job_logs_test
