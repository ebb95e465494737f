// A message that a process has yet to send.
#pragma once

#include "penstock/transport/transport.h"

namespace penstock {

struct SendRequest {
  WorldRank to;
  Tag tag;
  Message message;
};

}  // namespace penstock
