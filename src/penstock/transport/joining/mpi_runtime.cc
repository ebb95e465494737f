#include "penstock/transport/joining/mpi_runtime.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/process.h"
#include "penstock/transport/joining/launch_environment.h"
#include "penstock/transport/processes/exit_watch.h"
#include "penstock/transport/processes/mpi_network.h"
#include "penstock/transport/processes/peer_processes.h"

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

// What MPI_Init, which waits for all processes, does not tell: each process of a host leaves a file in mpirun's folder of
// the job, with the number of its newest world of all processes and its process id.

/// Empty if mpirun sets no such folder.
std::filesystem::path note_of(int rank) {
  const char* folder = std::getenv("PMIX_SERVER_TMPDIR");
  const char* job = std::getenv("PMIX_NAMESPACE");
  return folder && job ? std::filesystem::path(folder) / say("penstock.", job, ".", rank) : std::filesystem::path();
}

/// Leaves the note of this process, or removes it. Never throws, because notes only serve error messages.
void note_world(std::optional<int> world) noexcept {
  try {
    const std::filesystem::path note = note_of(launched_as(AskedTransport::mpi).rank);
    if (world)
      std::ofstream(note) << *world << ' ' << own_process_name().number << '\n';
    else
      std::filesystem::remove(note);
  } catch (const std::exception&) {
  }
}

/// The ranks of the job that have not opened its `world`, or have and do not respond.
std::string missing_in_job(int world) {
  const int size = launched_as(AskedTransport::mpi).size;
  const char* here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (note_of(0).empty() || !here) return "this launcher does not tell which ranks have joined";
  ProcessPlace place = own_place();
  std::vector<int> missing;
  std::string text;
  for (int rank = 0; rank < size; ++rank) {
    int its_world = 0;
    if (std::ifstream note(note_of(rank)); !(note >> its_world >> place.process.number) || its_world < world)
      missing.push_back(rank);
    else if (const std::string trouble = trouble_with(place); !trouble.empty())
      text += say(text.empty() ? "rank " : "; rank ", rank, trouble);
  }
  if (missing.empty()) return text.empty() ? "all ranks have joined, and one of them does not respond" : text;
  text += (text.empty() ? "" : "; ") + missing_text(missing);
  return std::atoi(here) < size ? text + " (ranks of other hosts cannot be seen from this one)" : text;
}

}  // namespace

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
  if (has_all_processes_) note_world(++rounds_);
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
    if (deadline.is_over()) fail_start();
    std::this_thread::sleep_for(pause);
  }
}

void MpiRuntime::fail_start() {
  is_broken_ = true;
  throw TransportError(incomplete_text(
      start_deadline_,
      has_all_processes_ ? missing_in_job(rounds_) : "a process of the given communicator has not made this world"));
}

void MpiRuntime::start(StartDeadline& deadline) {
  std::promise<void> started;
  auto ready = started.get_future();
  // In a thread of its own, because MPI_Init waits for all processes without a limit.
  std::thread([this, promise = std::move(started)]() mutable { keep(std::move(promise)); }).detach();
  ExitWatch::instance().at_end([this](bool is_clean) { return end_mpi(is_clean); });
  while (ready.wait_for(StartDeadline::look_every) != std::future_status::ready)
    if (deadline.is_over()) fail_start();
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
  for (const auto& [name, value] : local_mpi_settings(own_environment)) ::setenv(name.c_str(), value.c_str(), 0);
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
  if (rounds_ > 0) note_world(std::nullopt);
  return is_clean && is_finalized == finalizes;
}

}  // namespace penstock
