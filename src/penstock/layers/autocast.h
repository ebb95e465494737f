// Whether operations of this thread choose their precision by themselves.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include "penstock/layers/precision.h"

namespace penstock {

/// What torch's autocast does on a thread, for operations on one kind of device.
struct Autocast {
  bool enabled = false;
  c10::ScalarType type = c10::ScalarType::BFloat16;
  c10::DeviceType device = c10::DeviceType::CPU;

  /// Of this thread.
  static Autocast current(c10::DeviceType device = c10::DeviceType::CPU);
};

/// What layers of that precision compute under, on that kind of device.
Autocast autocast_for(Precision precision, c10::DeviceType device);

/// Throws ConfigError where LibTorch does not compute in that precision on that kind of device.
void require_precision(Precision precision, c10::DeviceType device);

/// Whether `type` is one that autocast computes in: 16 bits wide.
bool is_reduced(c10::ScalarType type);

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
