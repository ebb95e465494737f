// Checkpoints that may be whole and cannot be read: skipped, but never taken for damaged where nothing else is left.
#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "penstock/checkpoint/checkpoint_reader.h"
#include "tests/base/error_text.h"
#include "tests/checkpoint/small_checkpoint.h"

namespace penstock::test::not_readable_test {
namespace {

namespace fs = std::filesystem;

/// A system that refuses to open some files, or to read what it has opened.
class RefusingCalls : public SystemCalls {
 public:
  std::string opens_none_below = "nothing";
  bool reads_none = false;

  int open(const std::string& path, int flags, mode_t mode) override {
    if (!path.starts_with(opens_none_below)) return SystemCalls::open(path, flags, mode);
    errno = EACCES;
    return -1;
  }
  ssize_t pread(int file, void* bytes, std::size_t count, std::uint64_t offset) override {
    if (!reads_none) return SystemCalls::pread(file, bytes, count, offset);
    errno = EIO;
    return -1;
  }
};

class NotReadableCheckpoint : public testing::Test {
 protected:
  NotReadableCheckpoint() : folder_("checkpoint_not_readable") {
    CheckpointWriter writer({folder_.string()});
    old_ = save_small(writer, 1).directory;
    newest_ = save_small(writer, 2).directory;
  }
  NewestCheckpoint look() { return newest_checkpoint(folder_.string(), CheckpointCheck::checksums, calls_); }
  std::string refusal() {
    return error_text<NotReadable>([&] { look(); });
  }

  TemporaryFolder folder_;
  std::string old_, newest_;
  RefusingCalls calls_;
};

TEST_F(NotReadableCheckpoint, is_skipped_for_an_older_one) {
  calls_.opens_none_below = newest_ + "/";
  const NewestCheckpoint newest = look();
  ASSERT_TRUE(newest.checkpoint);
  EXPECT_EQ(newest.checkpoint->manifest().step, 1);
  ASSERT_EQ(newest.damaged.size(), 1U);
  EXPECT_TRUE(says(newest.damaged.front(), newest_, "manifest.json': Permission denied"));
}

TEST_F(NotReadableCheckpoint, is_not_nothing) {
  calls_.opens_none_below = folder_ / "step-";
  EXPECT_TRUE(says(refusal(), newest_, "manifest.json': Permission denied (errno 13)"));
  calls_ = {};
  calls_.reads_none = true;
  EXPECT_TRUE(says(refusal(), newest_, "manifest.json' at byte 0: Input/output error"));
}

TEST_F(NotReadableCheckpoint, is_one_of_another_version) {
  set_version(old_, "8");
  EXPECT_EQ(look().checkpoint->manifest().step, 2);
  set_version(newest_, "9");
  EXPECT_TRUE(says(refusal(), "manifest.json' has version 9, and this Penstock reads version 1 to 2"));
  // One without a manifest is damaged, whatever the others are.
  fs::remove(newest_ + "/manifest.json");
  EXPECT_TRUE(says(refusal(), "manifest.json' has version 8, and this Penstock reads version 1 to 2"));
  fs::remove(old_ + "/manifest.json");
  EXPECT_FALSE(look().checkpoint);
}

// Otherwise a training that begins anew would write its checkpoints among those of another one.
TEST_F(NotReadableCheckpoint, keeps_trainings_from_beginning_beside_it) {
  set_version(newest_, "8");
  const auto begin = [&](std::set<std::string> damaged) {
    return CheckpointWriter({.path = folder_.string(), .first_step = 1, .damaged = std::move(damaged)});
  };
  EXPECT_TRUE(says(error_text<ConfigError>([&] { begin({}); }),
                   "has a checkpoint of step 2, and training begins at step 1: resume from it"));
  auto writer = begin({newest_});  // a training that has skipped it
  EXPECT_TRUE(save_small(writer, 3).removed.empty());
  EXPECT_EQ(save_small(writer, 4).removed, std::vector<std::string>{old_});
  EXPECT_TRUE(fs::exists(newest_ + "/manifest.json"));
}

}  // namespace
}  // namespace penstock::test::not_readable_test
