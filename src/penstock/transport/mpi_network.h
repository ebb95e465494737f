// The processes of an MPI job, or of a communicator, as a BufferNetwork. Each world has a communicator of its own.
//
// It must be polled: MPI makes progress in its calls alone. The rank's own thread and the progress thread both do that,
// one at a time.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <mpi.h>

#include "penstock/transport/buffer_network.h"
#include "penstock/transport/exit_watch.h"
#include "penstock/transport/joining/mpi_runtime.h"

namespace penstock {

class MpiNetwork final : public BufferNetwork {
 public:
  /// Of the processes of `communicator`. Initializes MPI at the first call; returns when all of them have made it.
  /// Throws as MpiRuntime::open, and ConfigError where they run different builds.
  MpiNetwork(MPI_Comm communicator, std::chrono::milliseconds start_deadline);

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

  void set_up(std::chrono::milliseconds start_deadline);
  template <std::size_t count>
  std::vector<std::array<std::uint64_t, count>> gather(const std::array<std::uint64_t, count>& own,
                                                       std::chrono::milliseconds start_deadline);
  void compare_builds(const std::vector<std::array<std::uint64_t, 1>>& builds);
  bool receive_arrived(std::vector<Arrival>& arrived);
  bool finish(std::vector<Arrival>& arrived);

  MpiRuntime& mpi_ = MpiRuntime::instance();
  std::mutex& calls_ = mpi_.calls();  // of all worlds
  WorldRank rank_;
  std::vector<ProcessPlace> places_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Datatype block_ = MPI_DATATYPE_NULL;  // WireBuffer::unit bytes, so that counts stay small
  MPI_Request barrier_ = MPI_REQUEST_NULL;
  std::vector<Request> sending_;
  std::vector<Request> arriving_;
  std::optional<OpenWorld> open_world_;
};

}  // namespace penstock
