// The generator that LibTorch draws from while a call runs in a pipeline. Internal to this module.
//
// LibTorch's default CPU generator belongs to the whole process, so the numbers of a rank would depend on what other
// ranks, running as threads, drew before. But every operator that draws on a CPU ends in one that takes an optional
// Generator (dropout is bernoulli_, LSTM's dropout is bernoulli_, rrelu is rrelu_with_noise, ...). For each of these
// the library registers, once, a kernel that fills in the running call's generator if the caller gave none. The kernels
// are registered under a dispatch key of their own, which a thread includes while it runs the calls of a pipeline
// (TorchDraws); all other operators fall through that key at no cost.
#pragma once

#include <cstdint>

#include <ATen/core/Generator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace penstock {

/// This thread's generator for CPU tensors in the running call; undefined outside a pipeline. RandomPlaceGuard sets it.
at::Generator generator_of_call();

/// While it lives, LibTorch's operators on this thread draw random numbers for CPU tensors from generator_of_call(),
/// unless the caller passes a generator.
class TorchDraws {
 public:
  TorchDraws();

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
};

}  // namespace penstock
