// Lets every system call of a save fail, in turn: with an error, by writing less than wanted, by an interruption, and
// by the death of the process. The former checkpoint stays whole in each case.
#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "penstock/checkpoint/checkpoint_writer.h"
#include "penstock/checkpoint/durable_files.h"
#include "tests/base/error_text.h"
#include "tests/checkpoint/small_checkpoint.h"

namespace penstock::test::write_faults_test {
namespace {

struct Fault {
  int error_number = 0;
  bool writes_less = false;  // of each write that is longer than a byte
  bool kills = false;        // before the call; none is carried out from then on
};

/// Carries out all calls but the n-th, to which the fault happens.
class FaultyCalls : public SystemCalls {
 public:
  FaultyCalls(int nth, const Fault& fault) : nth_(nth), fault_(fault) {}
  ~FaultyCalls() override {
    for (const int file : open_) ::close(file);  // as the end of a process does
  }

  int calls() const { return calls_; }
  bool happened() const { return happened_; }

  int open(const std::string& path, int flags, mode_t mode) override {
    if (fails()) return -1;
    const int file = SystemCalls::open(path, flags, mode);
    if (file >= 0) open_.insert(file);
    return file;
  }
  ssize_t write(int file, const void* bytes, std::size_t count) override {
    if (fault_.writes_less && count > 1) {
      happened_ = true;
      return SystemCalls::write(file, bytes, count / 2);
    }
    return fails() ? -1 : SystemCalls::write(file, bytes, count);
  }
  ssize_t pread(int file, void* bytes, std::size_t count, std::uint64_t offset) override {
    return fails() ? -1 : SystemCalls::pread(file, bytes, count, offset);
  }
  int fsync(int file) override { return fails() ? -1 : SystemCalls::fsync(file); }
  int close(int file) override {
    if (dead_) return -1;
    open_.erase(file);
    const bool failed = fails();
    if (dead_) return open_.insert(file), -1;
    const int result = SystemCalls::close(file);  // a failing close() closes, too
    if (failed) errno = fault_.error_number;
    return failed ? -1 : result;
  }
  int lock(int file) override { return fails() ? -1 : SystemCalls::lock(file); }
  int mkdir(const std::string& path, mode_t mode) override { return fails() ? -1 : SystemCalls::mkdir(path, mode); }
  int rename(const std::string& from, const std::string& to) override {
    return fails() ? -1 : SystemCalls::rename(from, to);
  }
  int unlink_at(int directory, const std::string& name, int flags) override {
    return fails() ? -1 : SystemCalls::unlink_at(directory, name, flags);
  }
  int list(int directory, std::vector<std::string>& names) override {
    return fails() ? -1 : SystemCalls::list(directory, names);
  }

 private:
  bool fails() {
    errno = EIO;
    if (dead_) return true;
    if (++calls_ != nth_ || fault_.writes_less) return false;
    happened_ = true;
    dead_ = fault_.kills;
    errno = fault_.error_number;
    return true;
  }

  int nth_;
  Fault fault_;
  int calls_ = 0;
  bool happened_ = false, dead_ = false;
  std::set<int> open_;
};

struct Outcome {
  std::string message;  // "" without an error
  std::vector<std::string> remarks;
  bool happened = false;
  std::int64_t newest = 0;
  std::size_t temporary = 0;
  std::size_t checkpoints = 0;
};

/// Checkpoints 1 and 2.
const std::string& first_two() {
  static const TemporaryFolder folder("checkpoint_first_two");
  static const std::string run = [] {
    CheckpointWriter writer({folder / "run"});
    save_small(writer, 1);
    save_small(writer, 2);
    return folder / "run";
  }();
  return run;
}

/// Saves step 3 after the first two in a job of its own, whose n-th call is faulty.
Outcome save_with(int nth, const Fault& fault) {
  const TemporaryFolder folder("checkpoint_faults");
  std::filesystem::copy(first_two(), folder / "run", std::filesystem::copy_options::recursive);
  Outcome outcome;
  {
    FaultyCalls calls(nth, fault);
    try {
      CheckpointWriter writer({folder / "run", 2, 2}, calls);
      outcome.remarks = save_small(writer, 3, calls).remarks;
    } catch (const std::exception& error) {
      outcome.message = error.what();
    }
    outcome.happened = calls.happened();
  }
  outcome.newest = newest_step(folder / "run");
  for (const std::string& name : names_in(folder / "run")) {
    outcome.temporary += name.starts_with(".tmp-");
    outcome.checkpoints += name.starts_with("step-");
  }
  EXPECT_TRUE(newest_checkpoint(folder / "run", CheckpointCheck::checksums).damaged.empty()) << nth;
  // The next job goes on from there.
  CheckpointWriter next({folder / "run", 2, outcome.newest});
  save_small(next, 4);
  EXPECT_EQ(newest_step(folder / "run"), 4);
  for (const std::string& name : names_in(folder / "run")) EXPECT_FALSE(name.starts_with(".tmp-")) << nth;
  return outcome;
}

TEST(WriteFaults, of_every_call_leave_the_former_checkpoint) {
  for (const int error : {ENOSPC, EIO, EDQUOT}) {
    int calls = 0, failures = 0;
    for (;; ++calls) {
      const Outcome outcome = save_with(calls + 1, {error});
      if (!outcome.happened) break;
      if (outcome.message.empty()) {
        // Only what is done about old checkpoints may fail without notice, or the reading of one.
        EXPECT_EQ(outcome.newest, 3) << calls;
        continue;
      }
      ++failures;
      // The folder's own name is in the one above.
      EXPECT_TRUE(says(outcome.message, "/penstock_checkpoint_faults_", "(errno " + std::to_string(error) + ")"))
          << outcome.message;
      // Of the last call, which writes the folder's names, only the durability of the new one is unknown.
      EXPECT_TRUE(outcome.newest == 2 || (outcome.newest == 3 && says(outcome.message, "/run' cannot be")))
          << calls << ": " << outcome.message;
      EXPECT_EQ(outcome.temporary, 0U) << calls << ": " << outcome.message;
    }
    EXPECT_GT(calls, 60) << "of a save";
    EXPECT_GT(failures, 35) << "of a save, " << calls << " calls";
    RecordProperty("calls", calls);
  }
}

TEST(WriteFaults, of_no_space_tell_how_much_is_needed) {
  std::string message;
  for (int nth = 1; !says(message, "model-00002-of-00002.safetensors' cannot be written: "); ++nth) {
    const Outcome outcome = save_with(nth, {ENOSPC});
    ASSERT_TRUE(outcome.happened);
    message = outcome.message;
  }
  EXPECT_TRUE(says(message, "cannot be written: No space left on device (errno 28), after 0 of its ", " bytes"))
      << message;
}

TEST(WriteFaults, by_the_end_of_the_process_leave_a_complete_checkpoint) {
  int calls = 0;
  for (;; ++calls) {
    Fault kill;
    kill.kills = true;
    const Outcome outcome = save_with(calls + 1, kill);
    if (!outcome.happened) break;
    EXPECT_TRUE(outcome.newest == 2 || outcome.newest == 3) << calls;
    EXPECT_GE(outcome.checkpoints, 2U) << calls;
  }
  EXPECT_GT(calls, 60);
}

TEST(WriteFaults, by_interruptions_and_short_writes_are_not_noticed) {
  for (int nth = 1;; ++nth) {
    const Outcome outcome = save_with(nth, {EINTR});
    if (!outcome.happened) break;
    EXPECT_EQ(outcome.message, "") << nth;
    EXPECT_EQ(outcome.newest, 3) << nth;
    EXPECT_TRUE(outcome.remarks.empty()) << nth;
  }
  Fault less;
  less.writes_less = true;
  const Outcome outcome = save_with(0, less);
  EXPECT_TRUE(outcome.happened);
  EXPECT_EQ(outcome.message, "");
  EXPECT_EQ(outcome.newest, 3);
}

/// Refuses to begin to write, as some file systems do, and notes when it is asked to.
class NoEarlyWriting : public SystemCalls {
 public:
  int start_writing(int, std::uint64_t offset, std::uint64_t count) override {
    starts_.emplace_back(offset, count);
    errno = ESPIPE;
    return -1;
  }
  int fsync(int file) override {
    starts_before_fsync_ = starts_.size();
    return SystemCalls::fsync(file);
  }
  const std::vector<std::pair<std::uint64_t, std::uint64_t>>& starts() const { return starts_; }
  std::size_t starts_before_fsync() const { return starts_before_fsync_; }

 private:
  std::vector<std::pair<std::uint64_t, std::uint64_t>> starts_;
  std::size_t starts_before_fsync_ = 0;
};

TEST(WriteFaults, a_long_file_is_on_its_way_to_the_disk_before_it_is_complete) {
  constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;
  const TemporaryFolder folder("checkpoint_long_file");
  const std::vector<std::byte> part(3 * mebibyte / 4, std::byte{7});
  NoEarlyWriting calls;
  write_new_file(calls, folder / "file", {part, part, part, part, part});
  using Starts = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  EXPECT_EQ(calls.starts(), (Starts{{0, 3 * mebibyte / 2}, {3 * mebibyte / 2, 3 * mebibyte / 2}}));
  EXPECT_EQ(calls.starts_before_fsync(), 2U);
  EXPECT_EQ(std::filesystem::file_size(folder / "file"), 5 * part.size());
}

}  // namespace
}  // namespace penstock::test::write_faults_test
