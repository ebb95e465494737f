// The generator that LibTorch draws from while a call runs in a pipeline. Inside this module only.
//
// LibTorch's default generator of the CPU belongs to the whole process: with it, what a rank draws depends on what
// other ranks, running as threads, have drawn before. But every operator that draws on a CPU takes an optional
// Generator in the end (dropout is bernoulli_, LSTM's dropout is bernoulli_, rrelu is rrelu_with_noise, ...). For each
// of these the library registers, once, a kernel that fills in the running call's generator where none is given. The
// kernels stand under a dispatch key of their own, which a thread turns on for the calls of a pipeline (TorchDraws);
// all other operators pass that key by at no cost.
#pragma once

#include <cstdint>

#include <ATen/core/Generator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace penstock {

/// The running call's generator for CPU tensors, on this thread; undefined where there is none. Set by
/// RandomPlaceGuard.
at::Generator generator_of_call();

/// While it lives, what LibTorch draws on this thread for CPU tensors, without a generator of the caller's, comes from
/// generator_of_call().
class TorchDraws {
 public:
  TorchDraws();

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
};

}  // namespace penstock
