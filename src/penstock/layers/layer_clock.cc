#include "penstock/layers/layer_clock.h"

#include <algorithm>

namespace penstock::layers {

void LayerClock::add(const Interval& interval) {
  std::vector<double>& samples = samples_[interval.call].*interval.list;
  if (interval.sample == samples.size()) samples.push_back(0);
  if (marks_)
    intervals_.push_back(interval);
  else
    samples[interval.sample] += to_ms(interval.end - interval.begin) / interval.parts;
}

void LayerClock::read_marks() {
  if (!marks_) return;
  const std::vector<std::int64_t> times = marks_->times();
  for (const Interval& interval : intervals_) {
    const std::int64_t begin = times[static_cast<std::size_t>(interval.begin)];
    const std::int64_t end = times[static_cast<std::size_t>(interval.end)];
    (samples_[interval.call].*interval.list)[interval.sample] += to_ms(end - begin) / interval.parts;
  }
  intervals_.clear();
}

void LayerClock::ran(std::size_t call, std::int64_t begin, const std::vector<torch::Tensor>& outputs,
                     const std::vector<torch::Tensor>& inputs) {
  if (in_backward_) return;
  add({&Samples::forward, call, samples_[call].forward.size(), begin, now()});
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

// The time before the first output gradient, mostly the loss's, counts for the last call.
void LayerClock::begin_backward() {
  for (Samples& samples : samples_) samples.backward.push_back(0);
  current_ = samples_.empty() ? 0 : samples_.size() - 1;
  since_ = now();
  in_backward_ = true;
}

void LayerClock::gradient_came(std::size_t call) {
  if (!in_backward_) return;
  close_interval();
  current_ = call;
}

void LayerClock::close_interval() {
  const std::int64_t end = now();
  add({&Samples::backward, current_, samples_[current_].backward.size() - 1, since_, end});
  since_ = end;
}

void LayerClock::end_backward() {
  if (!in_backward_ || samples_.empty()) return;
  close_interval();
  in_backward_ = false;
}

void LayerClock::weights(std::size_t call, std::int64_t begin, std::size_t micro_batches) {
  add({&Samples::weight_grad, call, samples_[call].weight_grad.size(), begin, now(),
       static_cast<double>(micro_batches)});
}

}  // namespace penstock::layers
