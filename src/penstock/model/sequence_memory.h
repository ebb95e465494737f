// The state that layers keep between the calls of an inference session: keys and values of attention, positions.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "penstock/base/tensor.h"

namespace penstock {

/// The state of one micro-batch on one stage, kept between the calls of one inference session. A layer, or a function
/// in apply(), reads and writes its own part while it runs:
///
///   if (SequenceMemory* memory = SequenceMemory::current()) {
///     std::vector<torch::Tensor>& mine = memory->of_call();   // empty in the session's first call
///     ...
///   }
///
/// There is none in training, in evaluation, and in inference without a session: a layer then receives whole sequences.
/// Not thread-safe; belongs to the rank's thread.
class SequenceMemory {
 public:
  /// The memory of the micro-batch that this thread runs; null outside a session.
  static SequenceMemory* current();

  /// The tensors of the running call (RandomPlace::call). The reference is valid until the session ends.
  std::vector<torch::Tensor>& of_call();

  /// Whether the caller reads only the outputs at the last position of each sequence (InferOptions::last_position): a
  /// network may then compute only these, [n, 1, ...].
  bool wants_last_position = false;

 private:
  std::map<std::string, std::vector<torch::Tensor>, std::less<>> by_call_;
};

/// Sets SequenceMemory::current() for this thread while it lives; `memory` may be null.
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
