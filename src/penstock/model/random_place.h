// The position in a training run at which a random number is drawn. All random numbers that a layer or function draws
// in a pipeline are a function of this position. Hence they depend on neither partition, schedule, threads nor
// transport, and a call that runs a second time (recompute) draws the same numbers.
//
// Two kinds of random numbers:
//   penstock::Dropout, normal_like, uniform_like   from (seed, step, sample, call): also independent of m and d
//   numbers that LibTorch's operators draw         from (seed, step, first sample of the micro-batch, call)
//
// The second kind needs no support from layers: torch::nn::Dropout, RReLU, LSTM, MultiheadAttention, torch::randn_like
// and so on draw from a generator of the running call and leave the process's default generator
// alone.
#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace penstock {

/// This thread's generator for CPU tensors in the running call; undefined outside a pipeline. RandomPlaceGuard sets it.
at::Generator generator_of_call();

/// While it lives, LibTorch's operators on this thread draw random numbers for CPU tensors from generator_of_call(),
/// unless the caller passes a generator. Internal to this module.
///
/// LibTorch's default CPU generator belongs to the whole process, so the numbers of a rank would depend on what other
/// ranks, running as threads, drew before. But every operator that draws on a CPU ends in one that takes an optional
/// Generator (dropout is bernoulli_, LSTM's dropout is bernoulli_, rrelu is rrelu_with_noise, ...). For each of these
/// the library registers, once, a kernel that fills in the running call's generator if the caller gave none. The
/// kernels are registered under a dispatch key of their own, which a thread includes while this object lives; all other
/// operators fall through that key at no cost.
class TorchDraws {
 public:
  TorchDraws();

 private:
  c10::impl::IncludeDispatchKeyGuard guard_;
};

struct RandomPlace {
  std::uint64_t seed = 0;         // of the pipeline
  std::uint64_t step = 0;         // number of training steps before this one
  std::int64_t first_sample = 0;  // of the micro-batch, as an index into the whole batch
  std::string_view call;          // name of the graph's node: a layer's full name, numbered if it is called again
  std::int64_t samples = 0;       // in the micro-batch; 0: not known
  std::uint64_t calls = 0;        // number of calls begun so far

  /// Starts the call `name`, which must outlive it, with fresh random numbers.
  void begin_call(std::string_view name) {
    call = name;
    ++calls;
  }

  /// The position of the code that runs on this thread; null outside a pipeline.
  static const RandomPlace* current();
  /// A counter that starts at 0 in each call, so that several draws within one call get different numbers. Always 0
  /// outside a pipeline.
  static std::uint64_t next_draw();
};

/// The Philox key that all samples of a batch share for the `draw`-th draw of the call.
std::uint64_t key_of(const RandomPlace& place, std::uint64_t draw);
/// The seed of the running call's generator; differs between micro-batches.
std::uint64_t seed_of_call(const RandomPlace& place);

/// While it lives, sets RandomPlace::current() and the generator that LibTorch draws from on this thread. `place` must
/// outlive it and may change in between: call begin_call() before every call.
class RandomPlaceGuard {
 public:
  explicit RandomPlaceGuard(const RandomPlace& place);
  ~RandomPlaceGuard();
  RandomPlaceGuard(const RandomPlaceGuard&) = delete;
  RandomPlaceGuard& operator=(const RandomPlaceGuard&) = delete;
};

/// Encloses one call that may draw random numbers on `device`. Does nothing on a CPU. On other devices some operators
/// always draw from the device's default generator; therefore that generator is seeded from `place` and restored at the
/// end, and ranks that share a device run such calls one at a time.
class DeviceRandomGuard {
 public:
  DeviceRandomGuard(const RandomPlace& place, c10::Device device);
  ~DeviceRandomGuard();
  DeviceRandomGuard(const DeviceRandomGuard&) = delete;
  DeviceRandomGuard& operator=(const DeviceRandomGuard&) = delete;

 private:
  struct Seeded;
  Seeded* seeded_ = nullptr;  // null on a CPU
};

}  // namespace penstock
