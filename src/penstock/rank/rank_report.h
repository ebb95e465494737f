// What a rank reports about its part of a job that succeeds on all ranks or on none, as a message.
#pragma once

#include <string>

#include "penstock/world/collectives.h"

namespace penstock {

/// `KindOfReport` is an enum class of char; '+' is success.
template <class KindOfReport>
struct RankReport {
  using Kind = KindOfReport;
  Kind kind = static_cast<Kind>('+');
  std::string text = {};

  Message message() const { return message_of(std::string(1, static_cast<char>(kind)) + text); }
  static RankReport of(const Message& message) {
    const std::string coded = text_in(message);
    return {static_cast<Kind>(coded.at(0)), coded.substr(1)};
  }
};

}  // namespace penstock
