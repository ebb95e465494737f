#include "penstock/layers/layer_clock.h"

#include <algorithm>

#include "penstock/base/clock.h"

namespace penstock {
void LayerClock::ran(std::size_t call, std::int64_t begin_ns, const std::vector<torch::Tensor>& outputs,
                     const std::vector<torch::Tensor>& inputs) {
  if (in_backward_) return;
  samples_[call].forward.push_back(ms_since(begin_ns));
  samples_[call].output_bytes = 0;
  for (const torch::Tensor& output : outputs) {
    if (!output.defined()) continue;
    samples_[call].output_bytes += static_cast<std::int64_t>(output.nbytes());
    const bool is_handed_on =
        std::any_of(inputs.begin(), inputs.end(), [&](const torch::Tensor& input) { return input.is_same(output); });
    if (output.requires_grad() && !is_handed_on)
      output.register_hook([this, call](const torch::Tensor&) { gradient_came(call); });
  }
}

// The time before the first output gradient, mostly that of the loss, counts for the last call.
void LayerClock::begin_backward() {
  of_pass_.assign(samples_.size(), 0);
  current_ = samples_.empty() ? 0 : samples_.size() - 1;
  since_ns_ = now_ns();
  in_backward_ = true;
}

void LayerClock::gradient_came(std::size_t call) {
  if (!in_backward_) return;
  close_interval();
  current_ = call;
}

void LayerClock::close_interval() {
  const std::int64_t now = now_ns();
  of_pass_[current_] += to_ms(now - since_ns_);
  since_ns_ = now;
}

void LayerClock::end_backward() {
  if (!in_backward_ || samples_.empty()) return;
  close_interval();
  in_backward_ = false;
  for (std::size_t call = 0; call < samples_.size(); ++call) samples_[call].backward.push_back(of_pass_[call]);
}

void LayerClock::weights(std::size_t call, std::int64_t begin_ns, std::size_t micro_batches) {
  samples_[call].weight_grad.push_back(ms_since(begin_ns) / static_cast<double>(micro_batches));
}

}  // namespace penstock
