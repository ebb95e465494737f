// Connects the processes of a job by Gloo.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "penstock/transport/buffer_network.h"

namespace penstock {

/// What c10d and Gloo wait for at most: longer than any job. Deadlines are kept outside of them, because theirs also
/// count the time in which a process is stopped, and Gloo's own default is the time that its connections had to come
/// about.
constexpr std::chrono::hours gloo_time_limit{24 * 365};
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

/// Gloo's text without its source line and its advice: "Connection closed by peer [10.0.0.1]:1234".
std::string gloo_reason(const std::string& text);

}  // namespace penstock
