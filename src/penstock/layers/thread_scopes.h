// Settings of a rank's thread while an object lives: autocast, uncounted memory, backward passes on this thread.
#pragma once

#include <c10/core/AutogradState.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "penstock/layers/precision.h"

namespace penstock::layers {

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

/// Throws ConfigError if LibTorch does not support `precision` on `device`.
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

/// While it lives, allocations of this thread do not count as activations (rank/held_bytes.h). For memory that
/// outlives the micro-batch, such as the cast of a weight.
class Uncounted {
 public:
  Uncounted();

 private:
  c10::DebugInfoGuard guard_;
};

/// While it lives, the backward passes of the calling thread run on it, whatever the device. Otherwise LibTorch runs
/// those of a device on one thread that all ranks share, where the rank's state (random numbers, gradients, the current
/// streams of its devices) is not. On the CPU this is so without it.
class BackwardOnThisThread {
 public:
  BackwardOnThisThread() : before_(c10::AutogradState::get_tls_state().get_multithreading_enabled()) {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  ~BackwardOnThisThread() { c10::AutogradState::get_tls_state().set_multithreading_enabled(before_); }
  BackwardOnThisThread(const BackwardOnThisThread&) = delete;
  BackwardOnThisThread& operator=(const BackwardOnThisThread&) = delete;

 private:
  bool before_;
};

}  // namespace penstock::layers
