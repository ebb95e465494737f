// Power failures: at every change of the disk, with every prefix of the changes that were not synced, and with subsets
// of them, all checkpoints that can be seen are complete, and the newest is at least the last that was reported as
// durable. Without any one of the writer's syncs this does not hold.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/checkpoint/lossy_disk.h"
#include "tests/checkpoint/small_checkpoint.h"

namespace penstock::test::lost_sync_test {
namespace {

namespace fs = std::filesystem;

constexpr int kept = 2;

/// What is wrong with the folder after a power failure, if `durable` was reported; "" if nothing is.
std::string what_is_wrong(const std::string& folder, const std::vector<std::int64_t>& durable) {
  std::int64_t newest = 0;
  std::size_t complete = 0;
  if (fs::is_directory(folder)) {
    for (const CheckpointPlace& place : list_checkpoints(folder)) {
      try {
        const Checkpoint checkpoint(place.path);
        if (const auto damage = checkpoint.damage(); !damage.empty()) return damage.front();
        if (const std::string wrong = what_differs(checkpoint); !wrong.empty()) return wrong;
        newest = std::max(newest, checkpoint.manifest().step);
        ++complete;
      } catch (const std::exception& error) {
        return error.what();
      }
    }
  }
  if (!durable.empty() && newest < durable.back()) return say("the newest is of step ", newest);
  if (complete < std::min<std::size_t>(durable.size(), kept)) return say("only ", complete, " are left");
  return "";
}

/// Saves steps 1 to 3, of which two are kept, in a folder that need not exist before.
void save_three(LossyDisk& disk, const std::string& root) {
  CheckpointWriter writer({root + "/run", kept}, disk);
  for (const std::int64_t step : {1, 2, 3}) {
    save_small(writer, step, disk);
    disk.is_durable(step);
  }
}

/// Sets of changes that a power failure undoes: all, none, all but each prefix, each alone, all bytes, all names, and
/// some at random.
std::vector<std::vector<std::size_t>> losses(const LossyDisk& disk, std::size_t end, std::minstd_rand& random) {
  const std::vector<std::size_t> pending = disk.unsynced(end);
  std::vector<std::vector<std::size_t>> sets;
  for (std::size_t first = 0; first <= pending.size(); ++first)
    sets.emplace_back(pending.begin() + static_cast<std::ptrdiff_t>(first), pending.end());
  for (const std::size_t alone : pending) sets.push_back({alone});
  const auto add_if = [&](auto&& is_lost) {
    std::copy_if(pending.begin(), pending.end(), std::back_inserter(sets.emplace_back()), is_lost);
  };
  add_if([&](std::size_t i) { return !disk.changes()[i].bytes.empty(); });
  add_if([&](std::size_t i) { return disk.changes()[i].bytes.empty(); });
  for (int i = 0; i < 10; ++i) add_if([&](std::size_t) { return random() % 2 == 0; });
  return sets;
}

struct Search {
  std::size_t states = 0;
  std::string wrong;  // of the first state in which something is
};

/// Examines the states after a power failure at each change from `begin` on, until something is wrong.
Search search(const LossyDisk& disk, std::size_t begin, const std::string& scratch) {
  Search result;
  std::minstd_rand random(1);
  std::vector<std::int64_t> durable;
  std::set<std::pair<LossyDisk::Tree, std::size_t>> seen;
  for (std::size_t end = 0; end <= disk.changes().size(); ++end) {
    if (end > 0 && disk.changes()[end - 1].durable >= 0) durable.push_back(disk.changes()[end - 1].durable);
    if (end < begin) continue;
    for (const auto& undone : losses(disk, end, random)) {
      LossyDisk::Tree tree = disk.after(end, undone);
      if (!seen.emplace(tree, durable.size()).second) continue;
      ++result.states;
      fs::create_directories(scratch);
      LossyDisk::plant(tree, scratch);
      result.wrong = what_is_wrong(scratch + "/run", durable);
      fs::remove_all(scratch);
      if (result.wrong.empty()) continue;
      result.wrong = say("after change ", end, " without ", undone.size(), " of them: ", result.wrong);
      return result;
    }
  }
  return result;
}

TEST(PowerFailures, leave_complete_checkpoints) {
  const TemporaryFolder folder("checkpoint_power");
  fs::create_directories(folder / "disk");
  LossyDisk disk(folder / "disk");
  save_three(disk, folder / "disk");
  const Search result = search(disk, 0, folder / "scratch");
  EXPECT_EQ(result.wrong, "");
  EXPECT_GT(result.states, 300U);
  RecordProperty("states", static_cast<int>(result.states));
}

TEST(PowerFailures, spare_a_folder_whose_maker_did_not_sync_it) {
  const TemporaryFolder folder("checkpoint_unsynced_folder");
  fs::create_directories(folder / "disk");
  LossyDisk disk(folder / "disk");
  disk.mkdir(folder / "disk/run", 0777);
  save_three(disk, folder / "disk");
  EXPECT_EQ(search(disk, 0, folder / "scratch").wrong, "");
}

TEST(PowerFailures, do_damage_without_any_one_sync) {
  const TemporaryFolder folder("checkpoint_no_sync");
  int syncs = 1;
  for (int lost = 0; lost < syncs; ++lost) {
    fs::create_directories(folder / "disk");
    LossyDisk disk(folder / "disk", lost);
    save_three(disk, folder / "disk");
    syncs = disk.syncs();
    EXPECT_NE(search(disk, disk.lost_at(), folder / "scratch").wrong, "") << "without sync " << lost;
    fs::remove_all(folder / "disk");
  }
  EXPECT_EQ(syncs, 1 + 3 * 8 + 1);  // the folder; of each save, six files and two directories; removing the oldest
}

}  // namespace
}  // namespace penstock::test::lost_sync_test
