// Measures the time of each call of a stage during training steps: with the caches as the neighbouring calls leave them
// and while the other ranks compute. Forward is timed around the call. Backward is timed by hooks on the calls'
// outputs: from the moment when the gradient of a call's output is complete to the moment when an earlier call's is. So
// the times sum to the whole pass.
//
//     F  |--a--|--b--|--c--|          B  |--c--|--b--|--a--|
//              a     b     c  outputs     c     b     a     output gradients
#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

namespace penstock {

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

  explicit LayerClock(std::size_t calls) : samples_(calls) {}

  /// Records a call's forward and watches those `outputs` that require gradients and are not among its `inputs`. Does
  /// nothing within a backward pass, where recomputed calls run again.
  void ran(std::size_t call, std::int64_t begin_ns, const std::vector<torch::Tensor>& outputs,
           const std::vector<torch::Tensor>& inputs);
  /// To be called around the backward pass of one micro-batch.
  void begin_backward();
  void end_backward();
  /// Records a W of the call, over `micro_batches` micro-batches.
  void weights(std::size_t call, std::int64_t begin_ns, std::size_t micro_batches);

  const std::vector<Samples>& samples() const { return samples_; }

 private:
  void gradient_came(std::size_t call);
  void close_interval();

  std::vector<Samples> samples_;
  std::vector<double> of_pass_;  // by call, in the running backward pass
  std::size_t current_ = 0;
  std::int64_t since_ns_ = 0;
  bool in_backward_ = false;
};

}  // namespace penstock
