// What layers remember of a sequence from one inference call to the next: keys and values of attention, positions.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "penstock/base/tensor.h"

namespace penstock {

/// The memory of one micro-batch on one stage, between the calls of one inference session. A layer, or a function in
/// apply(), asks for its own part while it runs:
///
///   if (SequenceMemory* memory = SequenceMemory::current()) {
///     std::vector<torch::Tensor>& mine = memory->of_call();   // empty in the session's first call
///     ...
///   }
///
/// There is none while training, while evaluating, and in inference without a session: a layer then sees whole
/// sequences. Not thread-safe: for the rank's own thread.
class SequenceMemory {
 public:
  /// Of what runs on this thread; null where nothing is to be remembered.
  static SequenceMemory* current();

  /// What the call that runs now (RandomPlace::call) remembers. Stays where it is until the session ends.
  std::vector<torch::Tensor>& of_call();

 private:
  std::map<std::string, std::vector<torch::Tensor>, std::less<>> by_call_;
};

/// Sets SequenceMemory::current() while it lives; null takes it away.
class SequenceMemoryGuard {
 public:
  explicit SequenceMemoryGuard(SequenceMemory* memory);
  ~SequenceMemoryGuard();
  SequenceMemoryGuard(const SequenceMemoryGuard&) = delete;
  SequenceMemoryGuard& operator=(const SequenceMemoryGuard&) = delete;

 private:
  SequenceMemory* before_;
};

}  // namespace penstock
