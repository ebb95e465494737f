// Ranks as processes of an MPI job.
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <mpi.h>

#include "penstock/base/error.h"
#include "penstock/base/hash.h"
#include "penstock/base/process.h"
#include "penstock/transport/devices/device_channels.h"
#include "penstock/transport/joined_processes.h"
#include "penstock/transport/joining/launch_environment.h"
#include "penstock/transport/joining/start.h"
#include "penstock/transport/processes/buffer_network.h"
#include "penstock/transport/processes/exit_watch.h"
#include "penstock/transport/processes/mpi_network.h"
#include "penstock/transport/processes/peer_processes.h"

namespace penstock {
using namespace joining;
using namespace processes;
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

// What MPI_Init, which waits for all processes, does not tell: each process of a host leaves a file in mpirun's folder
// of the job, with the number of its newest world of all processes and its process id.

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

/// Throws ConfigError unless this process's MPI may be called by any of its threads at any time, as it must where the
/// program calls it too.
void require_mpi_for_all_threads() {
  int level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  require<ConfigError>(level == MPI_THREAD_MULTIPLE, "MPI already runs in this process with ", level_name(level),
                       "; beside another user Penstock needs MPI_THREAD_MULTIPLE: let Penstock start MPI, or ask "
                       "for that level in MPI_Init_thread");
}

/// The MPI library of this process: initialized by its first world, shared by all of its worlds, finalized at the end
/// of the process. Threads call MPI one at a time, with calls() held: MPI_THREAD_SERIALIZED.
class MpiRuntime {
 public:
  /// The instance of this process. It is never destroyed.
  static MpiRuntime& instance() {
    static MpiRuntime* const runtime = new MpiRuntime;
    return *runtime;
  }

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

/// The numbers of all processes of `communicator`, by rank.
template <std::size_t count>
std::vector<std::array<std::uint64_t, count>> gather_numbers(MPI_Comm communicator,
                                                             const std::array<std::uint64_t, count>& own,
                                                             std::chrono::milliseconds start_deadline) {
  MpiRuntime& mpi = MpiRuntime::instance();
  std::vector<std::array<std::uint64_t, count>> all;
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const std::lock_guard lock(mpi.calls());
    int size = 0;
    check_mpi(MPI_Comm_size(communicator, &size), "MPI_Comm_size");
    all.resize(static_cast<std::size_t>(size));
    check_mpi(MPI_Iallgather(own.data(), count, MPI_UINT64_T, all.data(), count, MPI_UINT64_T, communicator, &request),
              "MPI_Iallgather");
  }
  mpi.finish_start(request, StartDeadline(start_deadline));
  return all;
}

/// Throws ConfigError, and frees the communicator, if the processes run different builds. By a collective of its own,
/// of one number: builds may differ in everything else.
void require_one_build(MPI_Comm& communicator, std::chrono::milliseconds start_deadline) {
  const auto builds = gather_numbers<1>(communicator, {text_hash(build_identity())}, start_deadline);
  for (std::size_t rank = 0; rank < builds.size(); ++rank) {
    if (builds[rank] == builds[0]) continue;
    // A world that failed: otherwise rank 0 would wait in MPI_Finalize for the others.
    const OpenWorld failed([] {});
    const std::lock_guard lock(MpiRuntime::instance().calls());
    int own = 0;
    MPI_Comm_rank(communicator, &own);
    MPI_Comm_free(&communicator);
    throw ConfigError(say("rank ", rank, " runs another build than rank 0, and rank ", own, " runs ", build_identity(),
                          ": install the same build on all hosts"));
  }
}

std::unique_ptr<Transport> open_on(MPI_Comm communicator, const TransportOptions& options) {
  require_deadlines(options);
  MpiRuntime& mpi = MpiRuntime::instance();
  MPI_Comm own = mpi.open(communicator, options.start_deadline);
  {
    const std::lock_guard lock(mpi.calls());
    check_mpi(MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  require_one_build(own, options.start_deadline);
  const ProcessName process = own_process_name();
  std::vector<ProcessPlace> places;
  for (const auto& [host, numbered_by, number] : gather_numbers<3>(
           own, {host_id(), process.numbered_by, static_cast<std::uint64_t>(process.number)}, options.start_deadline))
    places.push_back({host, {numbered_by, static_cast<std::int64_t>(number)}});
  return open_process(std::make_unique<MpiNetwork>(own, std::move(places), mpi.calls()), options);
}

class MpiProcesses final : public JoinedProcesses {
 public:
  explicit MpiProcesses(int communicator) {
    int initialized = 0, finalized = 0, between_groups = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    require<ConfigError>(initialized && !finalized, "MPI does not run in this process, so it has no communicator: ",
                         "call MPI_Init_thread before and MPI_Finalize after the worlds of this communicator");
    const std::lock_guard lock(MpiRuntime::instance().calls());
    require_mpi_for_all_threads();
    communicator_ = MPI_Comm_f2c(communicator);
    require<ConfigError>(communicator_ != MPI_COMM_NULL,
                         "this process is not in the communicator (MPI_COMM_NULL): make a world on its members alone");
    check_mpi(MPI_Comm_test_inter(communicator_, &between_groups), "MPI_Comm_test_inter");
    require<ConfigError>(!between_groups,
                         "the communicator is one between two groups: merge them first (MPI_Intercomm_merge)");
    check_mpi(MPI_Comm_size(communicator_, &size_), "MPI_Comm_size");
  }

  std::string transport() const override { return "mpi"; }
  int size() const override { return size_; }
  std::unique_ptr<Transport> open(const TransportOptions& options) override { return open_on(communicator_, options); }

 private:
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int size_ = 0;
};

}  // namespace

bool mpi_available() { return true; }

std::unique_ptr<Transport> open_mpi(const TransportOptions& options) { return open_on(MPI_COMM_WORLD, options); }

std::shared_ptr<JoinedProcesses> mpi_processes(int communicator) {
  return std::make_shared<MpiProcesses>(communicator);
}

}  // namespace penstock
