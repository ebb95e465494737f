// "tuned" kernels: every convolution's products timed on a sample, each way there is, and the fastest chosen.
#pragma once

#include "penstock/autotune/sample_agreement.h"
#include "penstock/kernels/kernel_selection.h"

namespace penstock {

struct TuneOptions {
  c10::ScalarType compute_type = c10::kFloat;  // what convolutions compute in
  bool fuses_weights = false;                  // W takes all micro-batches of a step at once
  int micro_batches = 1;                       // of a step
};

/// For convolutions in two dimensions without groups, whose padding is zeros; all others keep LibTorch's kernels. The
/// best of three times each, after one that does not count. `at` is told every node. For the thread that runs it.
KernelSelection tune(const Graph& graph, const Tensors& sample, const TuneOptions& options,
                     const std::function<void(const Node&)>& at);

/// The same selection everywhere: world rank 0's. Collective.
KernelSelection agree_on_kernels(const SampleAgreement& agreement, const TuneOptions& options);

}  // namespace penstock
