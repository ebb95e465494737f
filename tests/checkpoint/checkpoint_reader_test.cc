// Visits of all checkpoints of a folder, also beside a writer that removes some.
#include "penstock/checkpoint/checkpoint_reader.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>

#include "tests/base/error_text.h"
#include "tests/checkpoint/small_checkpoint.h"

namespace penstock::test::checkpoint_reader_test {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

/// Calls the functions in their order, each after a directory has been listed.
class CallsWithAWriter : public SystemCalls {
 public:
  std::vector<std::function<void()>> after_list;

  int list(int directory, std::vector<std::string>& names) override {
    const int result = SystemCalls::list(directory, names);
    if (lists_++ < after_list.size()) after_list[lists_ - 1]();
    return result;
  }

 private:
  std::size_t lists_ = 0;
};

class Visit : public testing::Test {
 protected:
  Visit() : folder_("checkpoint_visit") {
    CheckpointWriter writer({.path = folder_.string(), .keep = 3});
    for (const std::int64_t step : {1, 2, 3}) save_small(writer, step);
  }
  std::string place(std::int64_t step) const { return folder_ / checkpoint_name(step, 1); }
  /// As a writer does that removes an old checkpoint.
  void remove(std::int64_t step) const { fs::rename(place(step), folder_ / say(".tmp-removed-", step)); }
  /// "NAME: STEP" of each that is opened, and "NAME: PROBLEM" of the others.
  Lines visited(const std::string& path) {
    Lines lines;
    visit_checkpoints(
        path,
        [&](const OpenedCheckpoint& opened) {
          EXPECT_EQ(opened.checkpoint.has_value(), opened.problem.empty());
          lines.push_back(say(fs::path(opened.path).filename().string(), ": ",
                              opened.checkpoint ? say(opened.checkpoint->manifest().step) : opened.problem,
                              opened.may_be_whole ? " (may be whole)" : ""));
        },
        calls_);
    return lines;
  }
  Lines visited() { return visited(folder_.string()); }

  TemporaryFolder folder_;
  CallsWithAWriter calls_;
};

TEST_F(Visit, opens_all_of_a_folder_or_one) {
  EXPECT_EQ(visited(), (Lines{"step-00000003: 3", "step-00000002: 2", "step-00000001: 1"}));
  EXPECT_EQ(visited(place(2)), Lines{"step-00000002: 2"});
  fs::create_directory(folder_ / "empty");
  EXPECT_EQ(visited(folder_ / "empty"), Lines());
}

TEST_F(Visit, leaves_out_what_a_writer_has_removed) {
  calls_.after_list = {[&] { remove(2); }};
  EXPECT_EQ(visited(), (Lines{"step-00000003: 3", "step-00000001: 1"}));
}

TEST_F(Visit, lists_again_if_all_were_removed) {
  calls_.after_list = {[&] {
    CheckpointWriter writer({.path = folder_.string(), .first_step = 3});
    save_small(writer, 4);
    for (const std::int64_t step : {1, 2, 3})
      if (fs::exists(place(step))) remove(step);
  }};
  EXPECT_EQ(visited(), Lines{"step-00000004: 4"});
}

TEST_F(Visit, of_one_checkpoint_names_it_if_it_was_removed) {
  remove(2);
  const Lines lines = visited(place(2));
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(says(lines[0], "step-00000002: cannot open '", "manifest.json': No such file or directory"));
}

TEST_F(Visit, tells_damage_from_what_may_be_whole) {
  set_version(place(3), "8");
  fs::remove(place(2) + "/manifest.json");
  const Lines lines = visited();
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_TRUE(says(lines[0], "has version 8, and this Penstock reads version 1 to 2", " (may be whole)"));
  EXPECT_TRUE(says(lines[1], "it has no manifest.json"));
  EXPECT_FALSE(says(lines[1], "(may be whole)"));
}

// It is listed, and there is nothing behind it. newest_checkpoint() took it for one that was just removed, and listed
// the folder again for ever.
TEST_F(Visit, takes_a_link_to_nothing_for_damage) {
  fs::create_symlink(folder_ / "nothing", place(4));
  const Lines lines = visited();
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_TRUE(says(lines[0], "step-00000004: cannot open '"));
  const NewestCheckpoint newest = newest_checkpoint(folder_.string(), CheckpointCheck::structure);
  ASSERT_TRUE(newest.checkpoint);
  EXPECT_EQ(newest.checkpoint->manifest().step, 3);
  EXPECT_EQ(newest.damaged.size(), 1U);
}

// A wrong folder is misuse (exit code 2), and a disk that fails is not (1).
TEST(ListCheckpoints, tells_a_wrong_folder_from_a_disk_that_fails) {
  struct Refused : SystemCalls {
    int error = 0;
    int open(const std::string&, int, mode_t) override {
      errno = error;
      return -1;
    }
  } calls;
  for (const int error : {ENOENT, ENOTDIR, EACCES}) {
    calls.error = error;
    EXPECT_THROW(list_checkpoints("run", calls), DataError) << error;
  }
  calls.error = EIO;
  EXPECT_EQ(test::error_text<Failure>([&] { list_checkpoints("run", calls); }),
            "the folder of checkpoints 'run' cannot be read: Input/output error (errno 5)");
}

}  // namespace
}  // namespace penstock::test::checkpoint_reader_test
