#include "penstock/launch/temporary_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "penstock/base/error.h"

namespace penstock::temporary_files_test {
namespace {

namespace fs = std::filesystem;

Environment environment_of(const std::map<std::string, std::string>& variables) {
  return [variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

TEST(TemporaryFiles, are_named_by_the_environment) {
  const auto variables = environment_of({{"OMPI_MCA_orte_jobfam_session_dir", "/tmp/ompi.vm.0/pid.77"},
                                         {"OMPI_MCA_ess_base_jobid", "763691009"},
                                         {"PMIX_HOSTNAME", "vm"}});
  const TemporaryFiles files = temporary_files(variables);
  EXPECT_EQ(files.session, "/tmp/ompi.vm.0/pid.77");
  EXPECT_EQ(files.shared_memory, say("/dev/shm/vader_segment.vm.", ::geteuid(), ".2d850001."));
  EXPECT_EQ(temporary_files(environment_of({})).session, "");
  EXPECT_EQ(temporary_files(environment_of({})).shared_memory, "");
  EXPECT_EQ(temporary_files(environment_of({{"OMPI_MCA_ess_base_jobid", "1x"}})).shared_memory, "");
}

class LeftFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(sessions_);
    std::ofstream(shared_ + "0") << "left";
    std::ofstream(shared_ + "1") << "left";
  }
  void TearDown() override {
    fs::remove_all(folder_);
    fs::remove(shared_ + "0");
    fs::remove(shared_ + "1");
  }

  std::string session_of(pid_t process) {
    const fs::path session = sessions_ / say("pid.", process);
    fs::create_directories(session / "0" / "0");
    std::ofstream(session / "contact.txt") << "left";
    return session.string();
  }
  void note(const JobLogs& logs, const std::string& what) {
    char host[256] = {};
    ::gethostname(host, sizeof(host) - 1);
    logs.note(say("host ", host, ": ", what));
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / say("left_", ::getpid());
  const fs::path sessions_ = folder_ / "ompi.vm.0";
  const std::string shared_ = say("/dev/shm/vader_segment.test.0.", ::getpid(), ".");
};

TEST_F(LeftFilesTest, are_removed) {
  const JobLogs logs = JobLogs::claim(folder_ / "logs", LogLayout::rank);
  const std::string session = session_of(77), other = session_of(78);
  note(logs, "session " + session);
  note(logs, "shared memory " + shared_);
  EXPECT_EQ(remove_temporary_files(logs, 77).size(), 3U);
  EXPECT_FALSE(fs::exists(session));
  EXPECT_TRUE(fs::exists(other)) << "of another process";
  EXPECT_FALSE(fs::exists(shared_ + "0"));
  EXPECT_FALSE(fs::exists(shared_ + "1"));
  EXPECT_TRUE(remove_temporary_files(logs, 77).empty()) << "a second time";
}

TEST_F(LeftFilesTest, nothing_else_is_removed) {
  const JobLogs logs = JobLogs::claim(folder_ / "logs", LogLayout::rank);
  const std::string session = session_of(77);
  fs::create_directories(folder_ / "pid.77");
  fs::create_directory_symlink(session, folder_ / "ompi.link");
  fs::create_directories(folder_ / "ompi.other");
  fs::create_directory_symlink(session, folder_ / "ompi.other" / "pid.77");
  note(logs, "session " + (folder_ / "pid.77").string());             // in no folder of Open MPI
  note(logs, "session " + (folder_ / "ompi.other/pid.77").string());  // a link
  note(logs, "session " + sessions_.string());
  note(logs, "shared memory /dev/shm/");
  note(logs, "shared memory " + shared_ + "0");  // without the dot at its end
  note(logs, "shared memory " + (folder_ / "vader_segment.").string());
  logs.note("host elsewhere: session " + session);
  EXPECT_EQ(remove_temporary_files(logs, 77), std::vector<std::string>());
  note(logs, "session " + session);
  EXPECT_EQ(remove_temporary_files(logs, 99), std::vector<std::string>()) << "not the session of this mpirun";
  EXPECT_TRUE(fs::exists(shared_ + "0"));
}

}  // namespace
}  // namespace penstock::temporary_files_test
