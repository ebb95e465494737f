// How a rank's messages pass through the memory of the host, for what carries tensors past it.
#pragma once

#include <functional>
#include <string>

#include "penstock/transport/send_request.h"

namespace penstock {

struct HostMessages {
  std::function<void(SendRequest)> send;
  /// Waits for the message with a tag from a rank; the text names it in errors.
  std::function<Message(WorldRank, const Tag&, const std::string&)> receive;
};

}  // namespace penstock
