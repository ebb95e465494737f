// The MPI library of this process: initialized by its first world, shared by all of its worlds, finalized at the end of
// the process.
//
// Threads call MPI one at a time, with calls() held: MPI_THREAD_SERIALIZED.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <mutex>
#include <string>

#include <mpi.h>

#include "penstock/transport/joining/start_deadline.h"

namespace penstock {

/// Throws ConfigError unless this process's MPI may be called by any of its threads at any time, as it must where the
/// program calls it too.
void require_mpi_for_all_threads();

class MpiRuntime {
 public:
  /// The instance of this process. It is never destroyed.
  static MpiRuntime& instance();

  /// A duplicate of `communicator`, for this process's next world on it; the caller frees it. Initializes MPI at the
  /// first call, unless the application has done so. Every process of the communicator makes its n-th call with it for
  /// the same world. Throws TransportError when not all of them call it within `deadline`, naming the missing ones
  /// where they are known (of MPI_COMM_WORLD), and ConfigError for an MPI that cannot be used. Called by one thread at
  /// a time.
  MPI_Comm open(MPI_Comm communicator, std::chrono::milliseconds deadline);

  /// Waits for `request`, a collective of all processes during the opening of a world, without holding calls(). Throws
  /// as open().
  void finish_start(MPI_Request& request, StartDeadline deadline);

  /// Must be held around every call of MPI.
  std::mutex& calls() { return calls_; }

 private:
  MpiRuntime() = default;

  enum class EndRequest { none, finalize, leave };

  void start(StartDeadline& deadline);
  void keep(std::promise<void> started);
  void begin_mpi();
  bool end_mpi(bool is_clean);
  [[noreturn]] void fail_start();

  std::mutex calls_;
  int rounds_ = 0;  // the number of worlds of all processes
  // Of the newest world, for messages.
  std::chrono::milliseconds start_deadline_{0};
  bool has_all_processes_ = true;
  bool started_ = false;
  bool is_ours_ = false;  // this library has initialized MPI, so it finalizes it
  bool is_broken_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  EndRequest end_request_ = EndRequest::none;  // guarded by mutex_: to the thread that initialized MPI
  bool finalized_ = false;                     // guarded by mutex_
};

}  // namespace penstock
