#include "penstock/train/hooks.h"
#include "penstock/train/line_format.h"

namespace penstock {

void Timing::add(double seconds) {
  ++count;
  last = seconds;
  sum += seconds;
}

std::string TimerHook::table() const {
  std::string text;
  const auto add = [&](const char* what, const Timing& timing) {
    if (timing.count > 0)
      text += format_line("%s: last %.4g s, mean %.4g s, %lld times\n", what, timing.last, timing.mean(),
                          static_cast<long long>(timing.count));
  };
  add("Train-step", train_step_);
  add("Train-epoch", train_epoch_);
  add("Test-step", test_step_);
  add("Test-epoch", test_epoch_);
  return text;
}

}  // namespace penstock
