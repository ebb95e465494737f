#include "penstock/runtime/reason.h"

#include <algorithm>

#include <c10/util/Exception.h>

namespace penstock {

std::string reason_of(const std::exception& error) {
  const auto* from_torch = dynamic_cast<const c10::Error*>(&error);
  if (!from_torch) return error.what();
  std::string reason = from_torch->what_without_backtrace();
  // Where the frames are part of the message itself.
  reason.resize(std::min({reason.find("\nframe #"), reason.find("\nException raised from"), reason.size()}));
  std::replace(reason.begin(), reason.end(), '\n', ' ');
  return reason;
}

}  // namespace penstock
