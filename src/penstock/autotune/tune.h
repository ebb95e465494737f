// Kernels::tuned: times every kernel for each product of the convolutions and linear layers on a sample, and chooses
// the fastest.
#pragma once

#include "penstock/autotune/sample.h"
#include "penstock/kernels/kernel_selection.h"
#include "penstock/schedule/weight_gradients.h"

namespace penstock {

struct TuneOptions {
  c10::ScalarType compute_type = c10::kFloat;                  // in which layers compute
  WeightGradients weight_gradients = WeightGradients::stream;  // of the schedule: whether a W stacks micro-batches
  int micro_batches = 1;                                       // of a step
};

struct TunedKernels {
  kernels::KernelSelection selection;
  double gain = 1;  // the time of LibTorch's kernels for the tuned shapes, divided by the selection's
};

/// The fastest kernels for linear layers and for two-dimensional convolutions without groups whose padding is zeros;
/// all others keep LibTorch's kernels. Takes the best of several runs. Calls `at` before each node.
/// Uses the intra-op threads of the calling thread.
TunedKernels tune(const Graph& graph, const Tensors& sample, const TuneOptions& options,
                  const std::function<void(const Node&)>& at);

/// Tunes on world rank 0, and returns its selection on every rank. Collective.
TunedKernels agree_on_kernels(const SampleAgreement& agreement, const TuneOptions& options);

}  // namespace penstock
