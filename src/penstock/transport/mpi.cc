// Ranks as processes of an MPI job.
#include <memory>

#include "penstock/base/error.h"
#include "penstock/transport/joined_processes.h"
#include "penstock/transport/mpi_network.h"
#include "penstock/transport/process_endpoint.h"

namespace penstock {

namespace {

std::unique_ptr<Transport> open_on(MPI_Comm communicator, const TransportOptions& options) {
  require_deadlines(options);
  return open_process(std::make_unique<MpiNetwork>(communicator, options.start_deadline), options);
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
