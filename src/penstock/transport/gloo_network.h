// The processes that a c10d store brings together, over the Gloo in LibTorch, as a BufferNetwork.
//
// Every two processes have two connections, each a FIFO of its own: one for frames, one for the payloads that are too
// large for a frame. So a question or an abort never waits behind a long tensor.
//
//   frame     a unit with the kind and the size of a buffer, then the buffer if it is short. Receives of frames are
//             always posted.
//   payload   a long buffer; its receive is posted when its frame arrives.
//
// Gloo calls nobody when a transfer is complete, but its waits block. So a thread waits for the frames of each peer, one
// for its payloads, and one for everything that is sent. A connection that breaks is noticed at once, also between
// hosts.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include <c10/util/intrusive_ptr.h>

#include "penstock/transport/buffer_network.h"

namespace c10d {
class Store;
}

namespace penstock {

struct GlooMembership {
  WorldRank rank;
  std::vector<ProcessPlace> places;  // of all ranks
  /// The address of this host at which the other processes reach it: a name or a number. Empty: as GLOO_SOCKET_IFNAME
  /// says, otherwise the address of the host's name.
  std::string address;
};

/// Connects the processes through `store`, which holds nothing but their addresses. All of them call it, with a store of
/// the same, otherwise empty prefix. Throws TransportError where a process is not connected within `limit`.
std::unique_ptr<BufferNetwork> open_gloo_network(const c10::intrusive_ptr<c10d::Store>& store,
                                                 GlooMembership membership, std::chrono::milliseconds limit);

}  // namespace penstock
