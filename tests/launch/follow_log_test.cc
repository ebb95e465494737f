#include "penstock/launch/follow_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "penstock/base/error.h"

namespace penstock::follow_log_test {
namespace {

class FollowLog : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::pipe(screen_), 0); }
  void TearDown() override {
    ::close(screen_[0]);
    ::close(screen_[1]);
    std::filesystem::remove(path_);
  }

  void write(const char* text) { file_ << text << std::flush; }
  LogFollower follow(const char* mark) { return {path_, screen_[1], mark}; }

  /// The output since the last call. Appends a mark to the pipe to find its end.
  std::string seen() {
    if (::write(screen_[1], "$", 1) != 1) return "the screen is full";
    std::string text(1000, ' ');
    text.resize(static_cast<std::size_t>(::read(screen_[0], text.data(), text.size())));
    return text;
  }

  const std::string path_ = testing::TempDir() + "/follow_" + std::to_string(::getpid());
  std::ofstream file_{path_};
  int screen_[2] = {-1, -1};
};

TEST_F(FollowLog, copies_new_contents) {
  LogFollower follower = follow("");
  follower.copy_new(false);
  EXPECT_EQ(seen(), "$");
  write("one\ntw");
  follower.copy_new(false);
  EXPECT_EQ(seen(), "one\ntw$");
  write("o\n");
  follower.copy_new(true);
  EXPECT_EQ(seen(), "o\n$");
}

TEST_F(FollowLog, marked_lines_are_copied_whole) {
  LogFollower follower = follow("[rank 1] ");
  write("one\ntw");
  follower.copy_new(false);
  EXPECT_EQ(seen(), "[rank 1] one\n$");
  write("o\n\nthr");
  follower.copy_new(false);
  EXPECT_EQ(seen(), "[rank 1] two\n[rank 1] \n$");
  follower.copy_new(true);
  EXPECT_EQ(seen(), "[rank 1] thr\n$") << "the last line had no end";
}

TEST_F(FollowLog, throws_for_a_missing_file) { EXPECT_THROW(LogFollower("/no/such/file", screen_[1], ""), Failure); }

}  // namespace
}  // namespace penstock::follow_log_test
