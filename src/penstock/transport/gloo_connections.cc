#include "penstock/transport/gloo_connections.h"

#include <algorithm>
#include <cstddef>
#include <deque>

#include <torch/types.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "penstock/base/error.h"

namespace penstock {
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
  for (const Greeting& greeting : greetings) greeting.work->wait(gloo_time_limit);
}

}  // namespace

GlooConnections connect_by_gloo(const c10::intrusive_ptr<c10d::Store>& store, const GlooMembership& membership) {
  using c10d::ProcessGroupGloo;
  const auto connect = [&](const char* prefix) {
    // The default looks up the name of this host, which takes seconds where no server of names answers.
    const auto options = membership.address.empty() ? ProcessGroupGloo::Options::create_default(gloo_time_limit)
                                                    : ProcessGroupGloo::Options::create(gloo_time_limit);
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
    throw TransportError(
        say("rank ", membership.rank.value(), " could not connect with all other ranks: ", gloo_reason(error.what())));
  }
}

std::string gloo_reason(const std::string& text) {
  const std::size_t begin = text.starts_with("[") && text.find("] ") != text.npos ? text.find("] ") + 2 : 0;
  const std::size_t end = std::min(text.find(". ", begin), text.find('\n', begin));
  return text.substr(begin, end == text.npos ? text.npos : end - begin);
}

}  // namespace penstock
