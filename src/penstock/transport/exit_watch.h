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

namespace penstock {

/// That of this process; thread-safe.
class ExitWatch {
 public:
  /// Never destroyed, because it works at the end of the process.
  static ExitWatch& instance() {
    static ExitWatch* const watch = new ExitWatch;
    return *watch;
  }
  /// Registers an open world. `process_ends` is called where the program calls exit() before remove(); it should report
  /// that to the other processes and return within a second. Returns the number of the world for remove().
  int add(std::function<void()> process_ends) {
    const std::lock_guard lock(mutex_);
    open_.emplace(++worlds_, std::move(process_ends));
    return worlds_;
  }
  /// Unregisters a world. Not `clean` means that it failed. Unless a later world ends clean, exit(0) then ends the process
  /// with EXIT_FAILURE.
  void remove(int number, bool clean) {
    const std::lock_guard lock(mutex_);
    open_.erase(number);
    ended_clean_ = clean;
  }

 private:
  ExitWatch() {
    ::on_exit([](int status, void*) { instance().end_process(status); }, nullptr);
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
    if (is_clean) return;
    for (const auto& [number, process_ends] : open) process_ends();
    // So that the launcher ends the other processes. Threads of open worlds still run, so static objects that they use
    // must not be destroyed.
    std::fflush(nullptr);
    std::_Exit(status != 0 ? status : EXIT_FAILURE);
  }

  const long process_ = getpid();
  std::mutex mutex_;
  std::map<int, std::function<void()>> open_;  // guarded by mutex_
  int worlds_ = 0;                             // guarded by mutex_
  bool ended_clean_ = true;                    // guarded by mutex_: the last world that ended
};

}  // namespace penstock
