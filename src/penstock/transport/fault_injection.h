// A transport that loses, delays or refuses messages, to test what stands on it.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "penstock/transport/transport.h"

namespace penstock {

/// What goes wrong with the sends of one endpoint, which are counted from 1.
struct FaultPlan {
  /// A message that leaves late: after `later_sends` further sends, or after `at_most`, whichever comes first.
  struct Delay {
    int later_sends = 1;
    std::chrono::milliseconds at_most{20};
  };

  std::set<int> drop = {};              // these vanish
  std::map<int, Delay> delay = {};      // these leave late
  std::optional<Delay> delay_odd = {};  // and so does every send with an odd number
  std::optional<int> fail_at = {};      // this one throws TransportError
};

/// `inner` with the faults of `plan`. What is held back when the endpoint is destroyed leaves at that moment.
std::unique_ptr<Transport> with_faults(std::unique_ptr<Transport> inner, FaultPlan plan);

}  // namespace penstock
