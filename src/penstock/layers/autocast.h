// Autocast (mixed precision) of the calling thread.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include "penstock/layers/precision.h"

namespace penstock {

/// The autocast mode of a thread for operations on one kind of device.
struct Autocast {
  bool enabled = false;
  c10::ScalarType type = c10::ScalarType::BFloat16;
  c10::DeviceType device = c10::DeviceType::CPU;

  /// The mode of the calling thread.
  static Autocast current(c10::DeviceType device = c10::DeviceType::CPU);
};

/// The autocast mode for layers of `precision` on `device`.
Autocast autocast_for(Precision precision, c10::DeviceType device);

/// Throws ConfigError where LibTorch does not support `precision` on `device`.
void require_precision(Precision precision, c10::DeviceType device);

/// Whether `type` is a 16-bit type that autocast computes in.
bool is_reduced(c10::ScalarType type);

/// Sets the calling thread's autocast mode while it lives. Disables torch's cache of casts: all threads share it, and
/// the first thread that leaves autocast clears it, so that the precision in which gradients are added would depend on
/// timing.
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
