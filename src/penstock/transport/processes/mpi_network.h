// The processes of an MPI job, or of a communicator, as a BufferNetwork. Each world has a communicator of its own.
//
// It must be polled: MPI makes progress in its calls alone. The rank's own thread and the progress thread both do that,
// one at a time.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <mpi.h>

#include "penstock/transport/processes/buffer_network.h"
#include "penstock/transport/processes/exit_watch.h"

namespace penstock::processes {

/// Throws TransportError, with MPI's text, unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

class MpiNetwork final : public BufferNetwork {
 public:
  /// Of the processes of `communicator`, which it frees, by rank in `places`. `calls` is held around every call of MPI
  /// by any world. REQUIRES: all processes run the same build.
  MpiNetwork(MPI_Comm communicator, std::vector<ProcessPlace> places, std::mutex& calls);

  std::string name() const override { return "mpi"; }
  WorldRank rank() const override { return rank_; }
  const std::vector<ProcessPlace>& places() const override { return places_; }
  std::mutex& calls() override { return calls_; }
  bool must_be_polled() const override { return true; }
  void notify(std::function<void()>) override {}
  void watch_exit(std::function<void()> process_ends) override { open_world_.emplace(std::move(process_ends)); }

  void begin_send(WorldRank to, int kind, WireBuffer buffer) override;
  bool advance(std::vector<Arrival>& arrived) override;
  std::vector<Transfer> transfers() const override;
  std::optional<Break> take_break() override { return std::nullopt; }
  void begin_barrier() override;
  bool is_barrier_done() override;
  void close() override;
  void abandon() noexcept override;

 private:
  /// A transfer that MPI has begun; the buffer must live until the transfer is complete.
  struct Request {
    WireBuffer buffer;
    WorldRank peer;
    int kind = 0;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  bool receive_arrived(std::vector<Arrival>& arrived);
  bool finish(std::vector<Arrival>& arrived);

  MPI_Comm comm_;
  const std::vector<ProcessPlace> places_;
  std::mutex& calls_;  // of all worlds
  WorldRank rank_;
  MPI_Datatype block_ = MPI_DATATYPE_NULL;  // WireBuffer::unit bytes, so that counts stay small
  MPI_Request barrier_ = MPI_REQUEST_NULL;
  std::vector<Request> sending_;
  std::vector<Request> arriving_;
  std::optional<OpenWorld> open_world_;
};

}  // namespace penstock::processes
