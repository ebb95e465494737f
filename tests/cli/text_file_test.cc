#include "penstock/cli/text_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <string>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "tests/base/error_text.h"
#include "tests/support/temporary_folder.h"

namespace penstock::text_file_test {
namespace {

using namespace cli;
namespace fs = std::filesystem;

class TextFile : public testing::Test {
 protected:
  std::string path(const char* name) const { return folder_ / name; }
  long file_count() const { return std::distance(fs::directory_iterator(folder_.string()), fs::directory_iterator()); }

  const test::TemporaryFolder folder_{"text_file"};
};

TEST_F(TextFile, reads_back_what_it_wrote) {
  const std::string text("one\r\ntwo\0three\n", 15);
  write_text(path("a"), text);
  EXPECT_EQ(read_text(path("a")), text);
  write_text(path("a"), "");
  EXPECT_EQ(read_text(path("a")), "");
  EXPECT_EQ(file_count(), 1) << "nothing is left of the way there";
}

TEST_F(TextFile, a_path_may_be_relative) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_.string());
  write_text("a", "text");
  write_text("./b", "text");
  fs::current_path(before);
  EXPECT_EQ(read_text(path("a")) + read_text(path("b")), "texttext");
}

TEST_F(TextFile, a_link_stays_a_link) {
  write_text(path("a"), "old");
  fs::create_symlink(path("a"), path("link"));
  write_text(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_text(path("a")), "new");
}

// Who may write in the folder can guess the name of the temporary file.
TEST_F(TextFile, a_planted_link_is_not_followed) {
  write_text(path("victim"), "of somebody else");
  const std::string planted = path("a") + ".partial-" + std::to_string(::getpid());
  fs::create_symlink(path("victim"), planted);
  require_place_for(path("a"));
  EXPECT_EQ(read_text(path("victim")), "of somebody else");
  fs::remove(planted);
  fs::create_symlink(path("victim"), planted);
  write_text(path("a"), "text");
  EXPECT_EQ(read_text(path("victim")), "of somebody else");
  EXPECT_FALSE(fs::is_symlink(path("a")));
  EXPECT_EQ(read_text(path("a")), "text");
  EXPECT_EQ(file_count(), 2);
}

TEST_F(TextFile, what_cannot_be_removed_from_its_way_is_not_written_to) {
  const std::string planted = path("a") + ".partial-" + std::to_string(::getpid());
  fs::create_directory(planted);
  EXPECT_THROW(require_place_for(path("a")), ConfigError);
  EXPECT_EQ(test::error_text<Failure>([&] { write_text(path("a"), "text"); }),
            path("a") + ": cannot be written: File exists");
  EXPECT_TRUE(fs::is_directory(planted));
  EXPECT_EQ(file_count(), 1);
}

TEST_F(TextFile, writes_directly_to_a_file_that_is_not_regular) {
  write_text("/dev/null", "nothing");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(test::error_text<Failure>([&] { write_text("/dev/full", "too much"); }),
            "/dev/full: cannot be written: No space left on device");
}

TEST_F(TextFile, refuses_paths_that_cannot_be_written) {
  EXPECT_THROW(write_text(path("no/such/folder"), "x"), ConfigError);
  EXPECT_THROW(write_text(folder_.string(), "x"), ConfigError);
  EXPECT_THROW(write_text("", "x"), ConfigError);
  EXPECT_THROW(require_place_for(path("no/such/folder")), ConfigError);
  EXPECT_THROW(require_place_for(folder_.string()), ConfigError);
  EXPECT_NO_THROW(require_place_for(path("new")));
  EXPECT_NO_THROW(require_place_for("-"));
  // Not even root can create a file here.
  EXPECT_THROW(require_place_for("/proc/penstock"), ConfigError);
  write_text(path("old"), "text");
  EXPECT_NO_THROW(require_place_for(path("old")));
  EXPECT_EQ(read_text(path("old")), "text");
  fs::remove(path("old"));
  EXPECT_EQ(file_count(), 0) << "asking leaves nothing";
  EXPECT_THROW(read_text(path("missing")), DataError);
  EXPECT_THROW(read_text(folder_.string()), DataError);
}

}  // namespace
}  // namespace penstock::text_file_test
