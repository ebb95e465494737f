// Ends open worlds where the program calls exit(), and makes a process whose last world failed end with an error.
// Torch-free.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace penstock::processes {

/// That of this process; thread-safe.
class ExitWatch {
 public:
  /// Never destroyed, because it works at the end of the process.
  static ExitWatch& instance() {
    static ExitWatch* const watch = new ExitWatch;
    return *watch;
  }
  /// Registers what a library does at the end of the process, before static objects are destroyed. `ends` is told
  /// whether no world is open and the last one ended clean. It returns whether its threads need no static objects any
  /// more.
  void at_end(std::function<bool(bool is_clean)> ends) {
    const std::lock_guard lock(mutex_);
    ends_.push_back(std::move(ends));
  }

 private:
  friend class OpenWorld;

  ExitWatch() {
    ::on_exit([](int status, void*) { instance().end_process(status); }, nullptr);
  }
  int add(std::function<void()> process_ends) {
    const std::lock_guard lock(mutex_);
    open_.emplace(++worlds_, std::move(process_ends));
    return worlds_;
  }
  void remove(int number, bool is_clean) {
    const std::lock_guard lock(mutex_);
    open_.erase(number);
    ended_clean_ = is_clean;
  }
  void end_process(int status) {
    if (getpid() != process_) return;  // a child after fork()
    std::map<int, std::function<void()>> open;
    bool is_clean = false;
    {
      const std::lock_guard lock(mutex_);
      open.swap(open_);
      is_clean = open.empty() && ended_clean_;
    }
    for (const auto& [number, process_ends] : open) process_ends();
    bool goes_on = is_clean;
    for (const auto& ends : ends_) goes_on = ends(is_clean) && goes_on;
    if (goes_on) return;
    // Threads may still run, so static objects that they use must not be destroyed. With an error, so that the launcher
    // ends the other processes.
    std::fflush(nullptr);
    std::_Exit(is_clean || status != 0 ? status : EXIT_FAILURE);
  }

  const long process_ = getpid();
  std::mutex mutex_;
  std::map<int, std::function<void()>> open_;             // guarded by mutex_
  std::vector<std::function<bool(bool is_clean)>> ends_;  // guarded by mutex_ until the end of the process
  int worlds_ = 0;                                        // guarded by mutex_
  bool ended_clean_ = true;                               // guarded by mutex_: the last world that ended
};

/// A world that is open from the construction of this object to its destruction.
class OpenWorld {
 public:
  /// `process_ends` is called where the program calls exit() meanwhile; it should report that to the other processes
  /// and return within a second.
  explicit OpenWorld(std::function<void()> process_ends)
      : number_(ExitWatch::instance().add(std::move(process_ends))) {}
  ~OpenWorld() { ExitWatch::instance().remove(number_, is_clean_); }
  OpenWorld(const OpenWorld&) = delete;
  OpenWorld& operator=(const OpenWorld&) = delete;

  /// All processes have agreed to end the world. Without this call it counts as failed: unless a later world ends
  /// clean, exit(0) then ends the process with EXIT_FAILURE.
  void ends_clean() { is_clean_ = true; }

 private:
  const int number_;
  bool is_clean_ = false;
};

}  // namespace penstock::processes
