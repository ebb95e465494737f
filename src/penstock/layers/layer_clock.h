// Measures the time of each call of a stage during training steps: with the caches as the neighbouring calls leave them
// and while the other ranks compute. Forward is timed around the call. Backward is timed by hooks on the calls'
// outputs: from the moment when the gradient of a call's output is complete to the moment when an earlier call's is. So
// the times sum to the whole pass.
//
//     F  |--a--|--b--|--c--|          B  |--c--|--b--|--a--|
//              a     b     c  outputs     c     b     a     output gradients
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <torch/types.h>

#include "penstock/base/clock.h"
#include "penstock/base/stream_marks.h"

namespace penstock::layers {

/// Lives on its rank's thread; must outlive the activations of the steps that it times.
class LayerClock {
 public:
  /// Milliseconds, one entry per micro-batch.
  struct Samples {
    std::vector<double> forward;
    std::vector<double> backward;     // B; I where it is split
    std::vector<double> weight_grad;  // W's share of a micro-batch
    std::int64_t output_bytes = 0;    // of a micro-batch
  };

  /// On a device, `stream` is that on which the stage computes; none on the CPU.
  LayerClock(std::size_t calls, const std::optional<c10::Stream>& stream) : samples_(calls) {
    if (stream) marks_.emplace(*stream);
  }

  /// The time; on a device the number of a mark, whose time read_marks() reads.
  std::int64_t now() { return marks_ ? marks_->mark() : now_ns(); }
  /// Records a call's forward, which began at `begin` of now(), and watches those `outputs` that require gradients and
  /// are not among its `inputs`. Does nothing within a backward pass, in which recomputed calls run again.
  void ran(std::size_t call, std::int64_t begin, const std::vector<torch::Tensor>& outputs,
           const std::vector<torch::Tensor>& inputs);
  /// To be called around the backward pass of one micro-batch.
  void begin_backward();
  void end_backward();
  /// Records a W of the call, over `micro_batches` micro-batches.
  void weights(std::size_t call, std::int64_t begin, std::size_t micro_batches);

  /// To be called after a step on a device, before samples(): waits for the stage's stream. Does nothing on the CPU.
  void read_marks();

  const std::vector<Samples>& samples() const { return samples_; }

 private:
  /// The time from `begin` to `end`, of now(), which a sample gets divided by `parts`.
  struct Interval {
    std::vector<double> Samples::*list;
    std::size_t call = 0;
    std::size_t sample = 0;  // its index in the list
    std::int64_t begin = 0;
    std::int64_t end = 0;
    double parts = 1;
  };

  /// Adds the interval to its sample: at once or, on a device, with read_marks().
  void add(const Interval& interval);
  void gradient_came(std::size_t call);
  void close_interval();

  std::vector<Samples> samples_;
  std::optional<StreamMarks> marks_;  // on a device
  std::vector<Interval> intervals_;   // whose marks are not read
  std::size_t current_ = 0;           // the call whose backward runs
  std::int64_t since_ = 0;            // of now()
  bool in_backward_ = false;
};

}  // namespace penstock::layers
