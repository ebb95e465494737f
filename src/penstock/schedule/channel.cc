#include "penstock/schedule/channel.h"

#include "penstock/base/error.h"

namespace penstock {

const char* to_string(Direction direction) { return direction == Direction::forward ? "forward" : "backward"; }

std::string to_string(const Channel& channel) {
  return say("the ", to_string(channel.direction), " channel of ranks ", channel.from.value(), ">", channel.to.value());
}

}  // namespace penstock
