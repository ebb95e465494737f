#include "penstock/transport/mpi_runtime.h"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/thread_name.h"
#include "penstock/transport/exit_watch.h"

namespace penstock {
namespace {

// Far longer than MPI_Finalize takes when all processes call it.
constexpr std::chrono::seconds finalize_timeout{10};

const char* level_name(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE: return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED: return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED: return "MPI_THREAD_SERIALIZED";
    default: return "MPI_THREAD_MULTIPLE";
  }
}

}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw TransportError(say(call, " failed: ", text));
}

void require_mpi_for_all_threads() {
  int level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  require<ConfigError>(level == MPI_THREAD_MULTIPLE, "MPI already runs in this process with ", level_name(level),
                       "; beside another user Penstock needs MPI_THREAD_MULTIPLE: let Penstock start MPI, or ask "
                       "for that level in MPI_Init_thread");
}

MpiRuntime& MpiRuntime::instance() {
  static MpiRuntime* const runtime = new MpiRuntime;
  return *runtime;
}

MPI_Comm MpiRuntime::open(MPI_Comm communicator, std::chrono::milliseconds deadline) {
  require<ConfigError>(!is_broken_, "MPI did not start in this process, and cannot be started a second time");
  start_deadline_ = deadline;
  StartDeadline left(deadline);
  has_all_processes_ = communicator == MPI_COMM_WORLD;
  if (has_all_processes_) roll_call_.come(++rounds_);
  if (!started_) start(left);

  // Nonblocking, so that worlds that are open already make progress, and a missing process is noticed.
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const std::lock_guard lock(calls_);
    check_mpi(MPI_Comm_idup(communicator, &comm, &request), "MPI_Comm_idup");
  }
  finish_start(request, left);
  return comm;
}

void MpiRuntime::finish_start(MPI_Request& request, StartDeadline deadline) {
  for (std::chrono::microseconds pause(50);; pause = std::min(2 * pause, std::chrono::microseconds(1000))) {
    {
      const std::lock_guard lock(calls_);
      int done = 0;
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done) return;
    }
    if (deadline.is_over()) fail_start("the first agreement");
    std::this_thread::sleep_for(pause);
  }
}

void MpiRuntime::fail_start(const char* doing) {
  is_broken_ = true;
  throw TransportError(say("the world is incomplete after ", static_cast<double>(start_deadline_.count()) * 1e-3,
                           " s (the start deadline, at ", doing, "): ",
                           has_all_processes_ ? roll_call_.missing(rounds_)
                                              : "a process of the given communicator has not made this world"));
}

void MpiRuntime::start(StartDeadline& deadline) {
  std::promise<void> started;
  auto ready = started.get_future();
  // In a thread of its own, because MPI_Init waits for all processes without a limit.
  std::thread([this, promise = std::move(started)]() mutable { keep(std::move(promise)); }).detach();
  ExitWatch::instance().at_end([this](bool is_clean) { return end_mpi(is_clean); });
  while (ready.wait_for(StartDeadline::look_every) != std::future_status::ready)
    if (deadline.is_over()) fail_start("MPI_Init");
  try {
    ready.get();
  } catch (...) {
    is_broken_ = true;
    throw;
  }
  started_ = true;
}

void MpiRuntime::keep(std::promise<void> started) {
  name_this_thread("MPI");
  try {
    begin_mpi();
    started.set_value();
  } catch (...) {
    started.set_exception(std::current_exception());
    return;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return end_request_ != EndRequest::none; });
  if (end_request_ == EndRequest::leave) return;
  lock.unlock();
  {
    const std::lock_guard calls(calls_);
    MPI_Finalize();
  }
  lock.lock();
  finalized_ = true;
  changed_.notify_all();
}

void MpiRuntime::begin_mpi() {
  int initialized = 0, finalized = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  require<ConfigError>(!finalized,
                       "the application has ended MPI in this process, and it cannot start again: end it "
                       "after the last world");
  if (initialized) return require_mpi_for_all_threads();
  for (const auto& [name, value] : local_mpi_settings([](const char* variable) { return std::getenv(variable); }))
    ::setenv(name.c_str(), value.c_str(), 0);
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
  is_ours_ = true;
  require<ConfigError>(level >= MPI_THREAD_SERIALIZED, "this MPI grants ", level_name(level),
                       ", Penstock needs MPI_THREAD_SERIALIZED or more: use an MPI that is built for threads");
  int rank = 0, size = 1;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  // Now, because the thread that makes the world still waits for this function.
  export_rank(WorldRank(rank), size);
}

// Runs at the end of the process; other threads may still run. Returns whether none of them is inside MPI. Without
// MPI_Finalize, after a failure, the launcher ends the other processes.
bool MpiRuntime::end_mpi(bool is_clean) {
  is_clean = is_clean && !is_broken_;
  const bool finalizes = is_clean && is_ours_;
  bool is_finalized = false;
  {
    std::unique_lock lock(mutex_);
    end_request_ = finalizes ? EndRequest::finalize : EndRequest::leave;
    changed_.notify_all();
    is_finalized = finalizes && changed_.wait_for(lock, finalize_timeout, [&] { return finalized_; });
  }
  roll_call_.leave();
  return is_clean && is_finalized == finalizes;
}

}  // namespace penstock
