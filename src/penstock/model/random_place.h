// Where in a training run a random number is drawn: what dropout goes by, so that its masks depend on neither the cut
// nor the schedule, the replicas or the threads.
#pragma once

#include <cstdint>
#include <string_view>

namespace penstock {

struct RandomPlace {
  std::uint64_t seed = 0;          // of the pipeline
  std::uint64_t step = 0;          // training steps before it
  std::int64_t first_sample = 0;   // of the micro-batch, in the whole batch
  std::string_view call;           // the node of the graph: a layer's full name, numbered where it is called again

  /// Of what runs on this thread; null outside a pipeline.
  static const RandomPlace* current();
};

/// Sets RandomPlace::current() while it lives. `place` must outlive it and may change.
class RandomPlaceGuard {
 public:
  explicit RandomPlaceGuard(const RandomPlace& place);
  ~RandomPlaceGuard();
  RandomPlaceGuard(const RandomPlaceGuard&) = delete;
  RandomPlaceGuard& operator=(const RandomPlaceGuard&) = delete;

 private:
  const RandomPlace* before_;
};

}  // namespace penstock
