#include "tests/world/joined_pairs.h"

#include <cstdlib>

#include "penstock/base/error.h"

#if PENSTOCK_HAVE_MPI
#include <mpi.h>
#endif
#if PENSTOCK_HAVE_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#endif

namespace penstock::test {
namespace {

#if PENSTOCK_HAVE_MPI
std::string refusal_of(int communicator) {
  try {
    mpi_processes(communicator);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "processes";
}

class PairsOfMpi final : public JoinedPairs {
 public:
  PairsOfMpi() {
    const std::string too_early = refusal_of(0);
    require<Failure>(too_early.find("MPI does not run in this process") == 0, too_early);
    int level = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_split(MPI_COMM_WORLD, rank_ % 2, rank_, &pair_);
    const std::string none = refusal_of(MPI_Comm_c2f(MPI_COMM_NULL));
    require<Failure>(none.find("this process is not in the communicator") == 0, none);
    own_pair_ = mpi_processes(MPI_Comm_c2f(pair_));
  }
  int rank() const override { return rank_; }
  std::shared_ptr<JoinedProcesses> own_pair() const override { return own_pair_; }
  std::shared_ptr<JoinedProcesses> all() const override { return mpi_processes(MPI_Comm_c2f(MPI_COMM_WORLD)); }
  int sum_of_ranks() const override {
    int sum = 0;
    MPI_Allreduce(&rank_, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return sum;
  }
  void leave() override {
    own_pair_.reset();
    MPI_Comm_free(&pair_);
    MPI_Finalize();
  }

 private:
  int rank_ = 0;
  MPI_Comm pair_ = MPI_COMM_NULL;
  std::shared_ptr<JoinedProcesses> own_pair_;
};
#endif

#if PENSTOCK_HAVE_GLOO
class PairsOfStore final : public JoinedPairs {
 public:
  PairsOfStore() {
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(std::atoi(std::getenv("MASTER_PORT")));
    options.isServer = rank_ == 0;
    options.waitWorkers = false;
    store_ = c10::make_intrusive<c10d::TCPStore>(std::getenv("MASTER_ADDR"), options);
    const auto of_pair = c10::make_intrusive<c10d::PrefixStore>(say("pair ", rank_ % 2), store_);
    own_pair_ = store_processes(of_pair, {.rank = rank_ / 2, .size = 2});
  }
  int rank() const override { return rank_; }
  std::shared_ptr<JoinedProcesses> own_pair() const override { return own_pair_; }
  std::shared_ptr<JoinedProcesses> all() const override { return store_processes(store_, {.rank = rank_, .size = 4}); }
  int sum_of_ranks() const override {
    store_->add("sum", rank_);
    for (store_->add("added", 1); store_->add("added", 0) < 4;) {
    }
    return static_cast<int>(store_->add("sum", 0));
  }
  /// The store, which rank 0 holds, must not end before the others have left it.
  void leave() override {
    store_->add("left", 1);
    while (rank_ == 0 && store_->add("left", 0) < 4) {
    }
  }

 private:
  const int rank_ = std::atoi(std::getenv("RANK"));
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<JoinedProcesses> own_pair_;
};
#endif

}  // namespace

std::unique_ptr<JoinedPairs> join_pairs(const std::string& by) {
#if PENSTOCK_HAVE_MPI
  if (by == "mpi") return std::make_unique<PairsOfMpi>();
#endif
#if PENSTOCK_HAVE_GLOO
  if (by == "store") return std::make_unique<PairsOfStore>();
#endif
  throw ConfigError("this build does not join processes by " + by);
}

}  // namespace penstock::test
