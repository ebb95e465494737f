// The processes that a c10d store brings together, over the Gloo in LibTorch, as a BufferNetwork.
//
// Every two processes have two connections, each a FIFO of its own: one for frames, one for the payloads that are too
// large for a frame. So a question or an abort never waits behind a long tensor.
//
//   frame     a unit with the kind and the size of a buffer, then the buffer if it is short. Receives of frames are
//             always posted.
//   payload   a long buffer; its receive is posted when its frame arrives, or before (early_posts.h).
//
// Gloo calls nobody when a transfer is complete, but its waits block. So a thread waits for the frames of each peer,
// one for its payloads, and one for everything that is sent. A connection that breaks is noticed at once, also between
// hosts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "penstock/transport/processes/buffer_network.h"

namespace penstock::processes {

/// The tag of all transfers: every connection is a FIFO.
constexpr int gloo_fifo_tag = 0;

struct GlooMembership {
  WorldRank rank;
  std::vector<ProcessPlace> places;  // of all ranks
  /// The address of this host at which the other processes reach it: a name or a number. Empty: as GLOO_SOCKET_IFNAME
  /// says, otherwise the address of the host's name.
  std::string address;
};

/// Two connections between every two processes.
struct GlooConnections {
  c10::intrusive_ptr<c10d::Backend> frames, payloads;
};

/// Connects the processes through `store`, which holds nothing but their addresses. All of them call it, with a store
/// of the same, otherwise empty prefix. Waits without a limit. Throws TransportError where two of them cannot be
/// connected.
GlooConnections connect_by_gloo(const c10::intrusive_ptr<c10d::Store>& store, const GlooMembership& membership);

/// The network of the processes that `connections` joins.
std::unique_ptr<BufferNetwork> make_gloo_network(GlooConnections connections, GlooMembership membership);

}  // namespace penstock::processes
