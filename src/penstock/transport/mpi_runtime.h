// MPI, of which a process has one: started by its first world, shared by all of its worlds, ended with the process.
//
// Every call of MPI is made by one thread at a time, with calls() held: MPI_THREAD_SERIALIZED.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <string>

#include <mpi.h>

#include "penstock/transport/roll_call.h"

namespace penstock {

/// Throws TransportError, with MPI's text, unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

class MpiRuntime {
 public:
  /// The one of this process. It is never destroyed.
  static MpiRuntime& instance();

  /// A communicator of its own for this process's next world, over all processes. Starts MPI at the first call, unless
  /// the application has. Every process makes its n-th call for the same world. Throws TransportError when not all of
  /// them come within `deadline`, naming those that did not as far as it is known; ConfigError for an MPI that cannot
  /// be used. Called by one thread at a time.
  MPI_Comm open(std::chrono::milliseconds deadline);

  /// Waits for `request`, in which all processes take part while a world is opened, without holding calls(). Throws as
  /// open().
  void finish_start(MPI_Request& request, std::chrono::milliseconds deadline);

  /// Held around every call of MPI.
  std::mutex& calls() { return calls_; }

  /// While a world is open, `process_ends` is called when the process ends nevertheless (exit() in a hook): it should
  /// tell the other processes, and return within a second. Returns the number by which to close.
  int add_world(std::function<void()> process_ends);
  /// The world is over. Not `clean`: it failed, and other processes may no longer answer; unless a later world ends
  /// clean, MPI is left unfinalized at the end of the process, so that the launcher ends the others.
  void close_world(int number, bool clean);

 private:
  MpiRuntime() = default;

  enum class Wish { none, finalize, leave };

  void start(std::chrono::milliseconds deadline);
  void keep(std::promise<void> started);
  void begin_mpi();
  void end_process(int status);
  [[noreturn]] void fail_start(const char* doing);

  std::mutex calls_;
  RollCall roll_call_;
  int rounds_ = 0;
  std::chrono::milliseconds start_deadline_{0};  // of the newest world, for messages
  bool started_ = false;
  bool is_ours_ = false;  // this library has started MPI, so it ends it
  bool is_broken_ = false;
  long process_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::function<void()>> open_;  // guarded by mutex_: the worlds
  int worlds_ = 0;                             // guarded by mutex_
  bool ended_clean_ = false;                   // guarded by mutex_: the last world that ended
  Wish wish_ = Wish::none;                     // guarded by mutex_
  bool finalized_ = false;                     // guarded by mutex_
};

}  // namespace penstock
