// Whether operations of this thread choose their precision by themselves.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace penstock {

/// What torch's autocast does on a thread, for operations on one kind of device.
struct Autocast {
  bool enabled = false;
  c10::ScalarType type = c10::ScalarType::BFloat16;
  c10::DeviceType device = c10::DeviceType::CPU;

  /// Of this thread.
  static Autocast current(c10::DeviceType device = c10::DeviceType::CPU);
};

/// Sets it while it lives. Casts are never cached: torch's cache belongs to all threads, and whoever ends first
/// empties it for everyone, so that it would depend on chance which gradients are added in which precision.
class AutocastGuard {
 public:
  explicit AutocastGuard(const Autocast& wanted);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  Autocast before_;
  bool cached_before_;
};

}  // namespace penstock
