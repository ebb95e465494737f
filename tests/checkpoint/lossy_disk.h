// A record of what is written to a directory, and the states in which a power failure can leave it.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/checkpoint/durable_files.h"

namespace penstock::test {

/// Carries out all calls below the directory `root`, and records those that change something.
///
/// Files and directories are numbered; number 0 is `root`. A change belongs to the file whose bytes, or the directory
/// whose names it changes, and is sure to be on the disk once that was synced. Before, a power failure may undo it,
/// whatever happens to others.
class LossyDisk : public SystemCalls {
 public:
  using Names = std::map<std::string, std::optional<int>>;  // none: the name is removed

  struct Change {
    int number = 0;
    Names names = {};        // of a directory
    std::string bytes = {};  // of a file, written at `offset`
    std::size_t offset = 0;
    bool syncs = false;         // then nothing else
    std::int64_t durable = -1;  // then nothing else: the step that is reported as durable
  };

  /// The state of the disk: the paths of directories, and of files with their contents.
  using Tree = std::map<std::string, std::optional<std::string>>;

  /// `lost_sync`: the sync, from 0, that does nothing although it returns without an error.
  explicit LossyDisk(std::string root, int lost_sync = -1) : root_(std::move(root)), lost_sync_(lost_sync) {
    directories_[0] = {};
  }

  const std::vector<Change>& changes() const { return changes_; }
  int syncs() const { return syncs_; }
  /// The place of the lost sync among the changes.
  std::size_t lost_at() const { return lost_at_; }
  void is_durable(std::int64_t step) { changes_.push_back({0, {}, {}, 0, false, step}); }

  /// Indices of the changes before `end` that a power failure may undo.
  std::vector<std::size_t> unsynced(std::size_t end) const {
    std::map<int, std::size_t> last_sync;
    for (std::size_t i = 0; i < end; ++i)
      if (changes_[i].syncs) last_sync[changes_[i].number] = i;
    std::vector<std::size_t> pending;
    for (std::size_t i = 0; i < end; ++i) {
      const Change& change = changes_[i];
      const auto synced = last_sync.find(change.number);
      if (!change.syncs && change.durable < 0 && (synced == last_sync.end() || synced->second < i))
        pending.push_back(i);
    }
    return pending;
  }

  /// The disk after the changes before `end`, without `undone`.
  Tree after(std::size_t end, const std::vector<std::size_t>& undone) const {
    std::map<int, std::map<std::string, int>> directories;
    std::map<int, std::string> files;
    for (std::size_t i = 0; i < end; ++i) {
      const Change& change = changes_[i];
      if (std::find(undone.begin(), undone.end(), i) != undone.end()) continue;
      for (const auto& [name, number] : change.names) {
        if (number)
          directories[change.number][name] = *number;
        else
          directories[change.number].erase(name);
      }
      if (change.bytes.empty()) continue;
      std::string& bytes = files[change.number];
      bytes.resize(std::max(bytes.size(), change.offset + change.bytes.size()));
      bytes.replace(change.offset, change.bytes.size(), change.bytes);
    }
    Tree tree;
    grow(tree, "", 0, directories, files);
    return tree;
  }

  /// Writes `tree` into the empty directory `root`.
  static void plant(const Tree& tree, const std::string& root) {
    for (const auto& [path, bytes] : tree) {
      if (bytes)
        std::ofstream(root + path, std::ios::binary) << *bytes;
      else
        std::filesystem::create_directory(root + path);
    }
  }

  int open(const std::string& path, int flags, mode_t mode) override {
    const bool existed = std::filesystem::exists(path);
    const int file = SystemCalls::open(path, flags, mode);
    if (file < 0) return file;
    if (!existed) rename_entry(path, next_number_++, false);
    open_[file] = {number_of(path), 0};
    return file;
  }
  ssize_t write(int file, const void* bytes, std::size_t count) override {
    const ssize_t done = SystemCalls::write(file, bytes, count);
    OpenFileState& state = open_.at(file);
    changes_.push_back({state.number, {}, {static_cast<const char*>(bytes), count}, state.offset});
    state.offset += count;
    return done;
  }
  int fsync(int file) override {
    if (syncs_++ == lost_sync_) {
      lost_at_ = changes_.size();
      return 0;
    }
    changes_.push_back({open_.at(file).number, {}, {}, 0, true});
    return 0;
  }
  int mkdir(const std::string& path, mode_t mode) override {
    const int result = SystemCalls::mkdir(path, mode);
    if (result == 0) rename_entry(path, next_number_++, true);
    return result;
  }
  int rename(const std::string& from, const std::string& to) override {
    const int result = SystemCalls::rename(from, to);
    if (result < 0) return result;
    const auto [directory, old_name] = place_of(from);
    const auto [same_directory, name] = place_of(to);
    require<InternalError>(directory == same_directory, "renamed into another directory: ", to);
    const int number = directories_.at(directory).at(old_name);
    directories_[directory].erase(old_name);
    directories_[directory][name] = number;
    changes_.push_back({directory, {{old_name, std::nullopt}, {name, number}}});
    return result;
  }
  int unlink_at(int directory, const std::string& name, int flags) override {
    const int result = SystemCalls::unlink_at(directory, name, flags);
    if (result < 0) return result;
    const auto [from, last] = directory == AT_FDCWD ? place_of(name) : std::pair(open_.at(directory).number, name);
    directories_[from].erase(last);
    changes_.push_back({from, {{last, std::nullopt}}});
    return result;
  }

 private:
  struct OpenFileState {
    int number = 0;
    std::size_t offset = 0;
  };

  void rename_entry(const std::string& path, int number, bool is_directory) {
    const auto [directory, name] = place_of(path);
    directories_[directory][name] = number;
    if (is_directory) directories_[number] = {};
    changes_.push_back({directory, {{name, number}}});
  }

  /// The number of the directory above, and the name.
  std::pair<int, std::string> place_of(const std::string& path) const {
    const std::filesystem::path whole(path);
    return {number_of(whole.parent_path().string()), whole.filename().string()};
  }

  int number_of(const std::string& path) const {
    int number = 0;
    for (const auto& name : std::filesystem::relative(path, root_))
      if (name != ".") number = directories_.at(number).at(name.string());
    return number;
  }

  void grow(Tree& tree, const std::string& path, int number, std::map<int, std::map<std::string, int>>& directories,
            std::map<int, std::string>& files) const {
    for (const auto& [name, below] : directories[number]) {
      const std::string place = path + "/" + name;
      if (directories_.contains(below)) {
        tree[place] = std::nullopt;
        grow(tree, place, below, directories, files);
      } else {
        tree[place] = files[below];
      }
    }
  }

  std::string root_;
  int lost_sync_;
  int syncs_ = 0, next_number_ = 1;
  std::size_t lost_at_ = 0;
  std::vector<Change> changes_;
  std::map<int, std::map<std::string, int>> directories_;  // as they are without a power failure
  std::map<int, OpenFileState> open_;
};

}  // namespace penstock::test
