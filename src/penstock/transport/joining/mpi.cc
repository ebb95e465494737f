// Ranks as processes of an MPI job.
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/transport/devices/device_channels.h"
#include "penstock/transport/joined_processes.h"
#include "penstock/transport/joining/build_identity.h"
#include "penstock/transport/joining/mpi_runtime.h"
#include "penstock/transport/processes/buffer_network.h"
#include "penstock/transport/processes/mpi_network.h"
#include "penstock/transport/processes/peer_processes.h"

namespace penstock {
namespace {

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

/// Throws ConfigError, and frees the communicator, if the processes run different builds. By a collective of its own, of
/// one number: builds may differ in everything else.
void require_one_build(MPI_Comm& communicator, std::chrono::milliseconds start_deadline) {
  const auto builds = gather_numbers<1>(communicator, {build_number()}, start_deadline);
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
