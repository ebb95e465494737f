// Stores and counts the live activations of a rank: F puts them in, B or W takes them out. Torch-free.
#pragma once

#include <algorithm>
#include <map>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/ids.h"

namespace penstock {

/// `Context` is what one micro-batch leaves on one stage. Used by one thread.
template <class Context>
class ActivationStore {
 public:
  /// Sets the largest number of contexts: the peak that validate() counted for this rank.
  void set_bound(int bound) { bound_ = bound; }

  /// Throws InternalError for a context that is stored already, and where the store would exceed the bound.
  void put(StageId stage, MicroBatch micro_batch, Context context) {
    const bool is_new = live_.emplace(std::pair{stage, micro_batch}, std::move(context)).second;
    require<InternalError>(is_new, "stage ", stage.value(), " ran F", micro_batch.value(), " twice");
    peak_ = std::max(peak_, size());
    require<InternalError>(size() <= bound_, "stage ", stage.value(), " holds ", size(), " live micro-batches at F",
                           micro_batch.value(), ", the schedule's bound is ", bound_);
  }

  /// Removes and returns a context. Throws InternalError where there is none.
  Context take(StageId stage, MicroBatch micro_batch) {
    auto node = live_.extract(std::pair{stage, micro_batch});
    require<InternalError>(!node.empty(), "stage ", stage.value(), " has no activations for micro-batch ",
                           micro_batch.value());
    return std::move(node.mapped());
  }

  /// The same without removing it: I uses the context that W will take.
  Context& at(StageId stage, MicroBatch micro_batch) {
    const auto found = live_.find(std::pair{stage, micro_batch});
    require<InternalError>(found != live_.end(), "stage ", stage.value(), " has no activations for micro-batch ",
                           micro_batch.value());
    return found->second;
  }

  int size() const { return static_cast<int>(live_.size()); }
  /// The largest number of contexts stored at one time so far.
  int peak() const { return peak_; }
  void clear() { live_.clear(); }

 private:
  std::map<std::pair<StageId, MicroBatch>, Context> live_;
  int bound_ = 0;
  int peak_ = 0;
};

}  // namespace penstock
