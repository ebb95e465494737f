#include "penstock/transport/mpi_network.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/transport/build_identity.h"
#include "penstock/transport/control_messages.h"
#include "penstock/transport/peer_processes.h"

namespace penstock {
MpiNetwork::MpiNetwork(MPI_Comm communicator, std::chrono::milliseconds start_deadline) {
  comm_ = mpi_.open(communicator, start_deadline);
  set_up(start_deadline);
}

void MpiNetwork::set_up(std::chrono::milliseconds start_deadline) {
  {
    const std::lock_guard lock(calls_);
    check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_mpi(MPI_Type_contiguous(static_cast<int>(WireBuffer::unit), MPI_BYTE, &block_), "MPI_Type_contiguous");
    check_mpi(MPI_Type_commit(&block_), "MPI_Type_commit");
    int rank = 0;
    check_mpi(MPI_Comm_rank(comm_, &rank), "MPI_Comm_rank");
    rank_ = WorldRank(rank);
  }
  compare_builds(gather<1>({build_number()}, start_deadline));
  const ProcessName process = own_process_name();
  for (const auto& [host, numbered_by, number] :
       gather<3>({host_id(), process.numbered_by, static_cast<std::uint64_t>(process.number)}, start_deadline))
    places_.push_back({host, {numbered_by, static_cast<std::int64_t>(number)}});
}

/// The numbers of all processes, by rank.
template <std::size_t count>
std::vector<std::array<std::uint64_t, count>> MpiNetwork::gather(const std::array<std::uint64_t, count>& own,
                                                                 std::chrono::milliseconds start_deadline) {
  std::vector<std::array<std::uint64_t, count>> all;
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const std::lock_guard lock(calls_);
    int size = 0;
    check_mpi(MPI_Comm_size(comm_, &size), "MPI_Comm_size");
    all.resize(static_cast<std::size_t>(size));
    check_mpi(MPI_Iallgather(own.data(), count, MPI_UINT64_T, all.data(), count, MPI_UINT64_T, comm_, &request),
              "MPI_Iallgather");
  }
  mpi_.finish_start(request, StartDeadline(start_deadline));
  return all;
}

// By a collective of its own, of one number: builds may differ in everything else.
void MpiNetwork::compare_builds(const std::vector<std::array<std::uint64_t, 1>>& builds) {
  for (std::size_t rank = 0; rank < builds.size(); ++rank) {
    if (builds[rank] == builds[0]) continue;
    // A world that failed: otherwise rank 0 would wait in MPI_Finalize for the others.
    const OpenWorld failed([] {});
    {
      const std::lock_guard lock(calls_);
      MPI_Type_free(&block_);
      MPI_Comm_free(&comm_);
    }
    throw ConfigError(say("rank ", rank, " runs another build than rank 0, and rank ", rank_.value(), " runs ",
                          build_identity(), ": install the same build on all hosts"));
  }
}

void MpiNetwork::begin_send(WorldRank to, int kind, WireBuffer buffer) {
  const std::size_t blocks = buffer.size() / WireBuffer::unit;
  require<TransportError>(blocks <= std::numeric_limits<int>::max(), "a message of ", buffer.size(), " bytes to rank ",
                          to.value(), " is too long for MPI: use smaller micro-batches");
  Request& sent = sending_.emplace_back(Request{std::move(buffer), to, kind});
  check_mpi(MPI_Isend(sent.buffer.data(), static_cast<int>(blocks), block_, to.value(), kind, comm_, &sent.request),
            "MPI_Isend");
}

bool MpiNetwork::advance(std::vector<Arrival>& arrived) {
  const bool any = receive_arrived(arrived);
  return finish(arrived) || any;
}

bool MpiNetwork::receive_arrived(std::vector<Arrival>& arrived) {
  bool any = false;
  for (int found = 1; found;) {
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    check_mpi(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &found, &handle, &status), "MPI_Improbe");
    if (!found) break;
    any = true;
    int blocks = 0;
    check_mpi(MPI_Get_count(&status, block_, &blocks), "MPI_Get_count");
    Request request{WireBuffer(static_cast<std::size_t>(blocks) * WireBuffer::unit, pool()),
                    WorldRank(status.MPI_SOURCE), status.MPI_TAG};
    if (request.kind == control_messages::kind_message) {
      // Not MPI_Mrecv: a large message would delay the ones behind it.
      check_mpi(MPI_Imrecv(request.buffer.data(), blocks, block_, &handle, &request.request), "MPI_Imrecv");
      arriving_.push_back(std::move(request));
    } else {
      // At once, so that nothing overtakes it. It is short, and so has come already.
      check_mpi(MPI_Mrecv(request.buffer.data(), blocks, block_, &handle, MPI_STATUS_IGNORE), "MPI_Mrecv");
      arrived.push_back({request.peer, request.kind, std::move(request.buffer)});
    }
  }
  return any;
}

bool MpiNetwork::finish(std::vector<Arrival>& arrived) {
  bool any = false;
  const auto done = [&](Request& request) {
    int flag = 0;
    check_mpi(MPI_Test(&request.request, &flag, MPI_STATUS_IGNORE), "MPI_Test");
    any = any || flag;
    return flag != 0;
  };
  std::erase_if(sending_, done);
  const auto first_done =
      std::stable_partition(arriving_.begin(), arriving_.end(), [&](Request& request) { return !done(request); });
  for (auto request = first_done; request != arriving_.end(); ++request)
    arrived.push_back({request->peer, request->kind, std::move(request->buffer)});
  arriving_.erase(first_done, arriving_.end());
  return any;
}

std::vector<BufferNetwork::Transfer> MpiNetwork::transfers() const {
  std::vector<Transfer> all;
  for (const auto* requests : {&sending_, &arriving_})
    for (const Request& request : *requests) all.push_back({request.peer, request.buffer.size()});
  return all;
}

void MpiNetwork::begin_barrier() { check_mpi(MPI_Ibarrier(comm_, &barrier_), "MPI_Ibarrier"); }

bool MpiNetwork::is_barrier_done() {
  int done = 0;
  check_mpi(MPI_Test(&barrier_, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

void MpiNetwork::close() {
  std::vector<Arrival> unused;
  receive_arrived(unused);
  abandon();
  MPI_Type_free(&block_);
  MPI_Comm_free(&comm_);
  if (open_world_) open_world_->ends_clean();
}

// Cancels transfers that do not complete because a rank no longer answers, as far as MPI can cancel them.
void MpiNetwork::abandon() noexcept {
  for (auto* requests : {&sending_, &arriving_})
    for (Request& request : std::exchange(*requests, {})) {
      int done = 0;
      if (MPI_Test(&request.request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done) continue;
      MPI_Cancel(&request.request);
      MPI_Request_free(&request.request);
      // MPI may still access the buffer, so it is never freed.
      static_cast<void>(new WireBuffer(std::move(request.buffer)));
    }
}

}  // namespace penstock
