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

#include "penstock/transport/gloo_connections.h"

namespace penstock {

/// The network of the processes that `connections` joins.
std::unique_ptr<BufferNetwork> make_gloo_network(GlooConnections connections, GlooMembership membership);

}  // namespace penstock
