#include "penstock/transport/processes/mpi_network.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/transport/processes/control_messages.h"

namespace penstock::processes {

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw TransportError(say(call, " failed: ", text));
}

MpiNetwork::MpiNetwork(MPI_Comm communicator, std::vector<ProcessPlace> places, std::mutex& calls)
    : comm_(communicator), places_(std::move(places)), calls_(calls) {
  const std::lock_guard lock(calls_);
  check_mpi(MPI_Type_contiguous(static_cast<int>(WireBuffer::unit), MPI_BYTE, &block_), "MPI_Type_contiguous");
  check_mpi(MPI_Type_commit(&block_), "MPI_Type_commit");
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm_, &rank), "MPI_Comm_rank");
  rank_ = WorldRank(rank);
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

}  // namespace penstock::processes
