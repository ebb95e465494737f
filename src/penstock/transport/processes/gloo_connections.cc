#include "penstock/transport/processes/gloo_network.h"

#include <cstddef>
#include <deque>

#include <torch/types.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "penstock/base/error.h"
#include "penstock/transport/c10d.h"

namespace penstock::processes {
namespace {

/// Exchanges a byte with every other process. Afterwards they need nothing from this one to be connected with it, even
/// if it is stopped at once.
void greet(c10d::Backend& connection, const GlooMembership& membership) {
  struct Greeting {
    std::vector<torch::Tensor> bytes{torch::zeros({1}, torch::kByte)};
    c10::intrusive_ptr<c10d::Work> work;
  };
  std::deque<Greeting> greetings;
  for (const bool sends : {false, true})
    for (std::size_t i = 0; i < membership.places.size(); ++i) {
      if (i == membership.rank.index()) continue;
      const int peer = static_cast<int>(i);
      Greeting& greeting = greetings.emplace_back();
      greeting.work = sends ? connection.send(greeting.bytes, peer, gloo_fifo_tag)
                            : connection.recv(greeting.bytes, peer, gloo_fifo_tag);
    }
  for (const Greeting& greeting : greetings) greeting.work->wait(transport::c10d_time_limit);
}

}  // namespace

GlooConnections connect_by_gloo(const c10::intrusive_ptr<c10d::Store>& store, const GlooMembership& membership) {
  using c10d::ProcessGroupGloo;
  const auto connect = [&](const char* prefix) {
    // The default looks up the name of this host, which takes seconds where no server of names answers.
    const auto options = membership.address.empty()
                             ? ProcessGroupGloo::Options::create_default(transport::c10d_time_limit)
                             : ProcessGroupGloo::Options::create(transport::c10d_time_limit);
    options->threads = 1;  // it would run collective operations
    if (!membership.address.empty())
      options->devices.push_back(ProcessGroupGloo::createDeviceForHostname(membership.address));
    auto group = c10::make_intrusive<ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>(prefix, store),
                                                       membership.rank.value(),
                                                       static_cast<int>(membership.places.size()), options);
    greet(*group, membership);
    return group;
  };
  try {
    GlooConnections connections;
    connections.frames = connect("frames");
    connections.payloads = connect("payloads");
    return connections;
  } catch (const std::exception& error) {
    throw TransportError(say("rank ", membership.rank.value(),
                             " could not connect with all other ranks: ", transport::c10d_reason(error.what())));
  }
}

}  // namespace penstock::processes
