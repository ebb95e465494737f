// A transport that loses or delays messages, for testing its users.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "penstock/transport/transport.h"

namespace penstock {

/// The faults of one endpoint's sends, which are counted from 1.
struct FaultPlan {
  /// A message is sent late: after `later_sends` further sends, or after `at_most`, whichever comes first.
  struct Delay {
    int later_sends = 1;
    std::chrono::milliseconds at_most{20};
  };

  std::set<int> drop = {};                    // numbers of the sends that are lost
  std::optional<Delay> delay_odd = {};        // the delay of every send with an odd number
  std::function<void(const Tag&)> sent = {};  // called with every send
  bool is_alone_on_host = false;              // according to shares_host()
};

/// `inner` with the faults of `plan`. The destructor of the endpoint sends the messages that are still delayed.
std::unique_ptr<Transport> with_faults(std::unique_ptr<Transport> inner, FaultPlan plan);

}  // namespace penstock
