// Keeps the backward pass on the rank's thread.
#pragma once

#include <c10/core/AutogradState.h>

namespace penstock {

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

}  // namespace penstock
