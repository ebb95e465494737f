// How long each call of a stage takes, where it runs: between its neighbours, with the caches as they leave them and
// while the other ranks compute. Forward is timed around the call. Backward is timed by hooks on what the calls gave:
// from the moment a call's gradient is there to the moment that an earlier call's is. So the parts sum to the whole.
//
//     F  |--a--|--b--|--c--|          B  |--c--|--b--|--a--|
//        outputs  a     b     c             c     b     a      gradients of these are there
#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

namespace penstock {

/// Lives on its rank's thread, longer than the activations of the steps that it times.
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

  /// The call has run; `outputs` that want gradients, and are not its `inputs` handed on, are watched. Within a
  /// backward pass, where calls run again, nothing is noted.
  void ran(std::size_t call, std::int64_t begin_ns, const std::vector<torch::Tensor>& outputs,
           const std::vector<torch::Tensor>& inputs);
  /// Around the backward pass of one micro-batch.
  void begin_backward();
  void end_backward();
  /// One W of the call.
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
