#include "penstock/runtime/autocast.h"

#include <ATen/autocast_mode.h>

namespace penstock {
namespace {

void set(const Autocast& wanted) {
  at::autocast::set_autocast_enabled(wanted.device, wanted.enabled);
  at::autocast::set_autocast_dtype(wanted.device, wanted.type);
}

}  // namespace

Autocast Autocast::current(c10::DeviceType device) {
  return {at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device), device};
}

AutocastGuard::AutocastGuard(const Autocast& wanted)
    : before_(Autocast::current(wanted.device)), cached_before_(at::autocast::is_autocast_cache_enabled()) {
  set(wanted);
  if (wanted.enabled) at::autocast::set_autocast_cache_enabled(false);
}

AutocastGuard::~AutocastGuard() {
  set(before_);
  at::autocast::set_autocast_cache_enabled(cached_before_);
}

}  // namespace penstock
