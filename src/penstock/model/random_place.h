// Where in a training run a random number is drawn. Everything random that a layer or function draws in a pipeline
// follows from this place, so that it depends on neither the partition nor the schedule, the threads or the transport,
// and a call that runs a second time (recompute) draws the same numbers.
//
// Two kinds of random numbers go by it:
//   penstock::Dropout, normal_like, uniform_like   by (seed, step, sample, call): also independent of m and d
//   whatever LibTorch draws by itself              by (seed, step, first sample of the micro-batch, call)
//
// The second kind needs no help from layers: torch::nn::Dropout, RReLU, LSTM, MultiheadAttention, torch::randn_like and
// so on find a generator of the running call (random_generator.h); the process's default generator stays as it is.
#pragma once

#include <cstdint>
#include <string_view>

#include <c10/core/Device.h>

namespace penstock {

struct RandomPlace {
  std::uint64_t seed = 0;         // of the pipeline
  std::uint64_t step = 0;         // training steps before it
  std::int64_t first_sample = 0;  // of the micro-batch, in the whole batch
  std::string_view call;          // the node of the graph: a layer's full name, numbered where it is called again
  std::int64_t samples = 0;       // of the micro-batch; 0: not known
  std::uint64_t calls = 0;        // begun so far

  /// `call` names the next call; its random numbers start anew.
  void begin_call(std::string_view name) {
    call = name;
    ++calls;
  }

  /// Of what runs on this thread; null outside a pipeline.
  static const RandomPlace* current();
  /// How often this was asked in the running call before: a module that draws several times gets other numbers each
  /// time. 0 outside a pipeline.
  static std::uint64_t next_draw();
};

/// What the random numbers of a whole batch have in common. `draw` counts the draws of one call.
std::uint64_t key_of(const RandomPlace& place, std::uint64_t draw);
/// What the running call's generators start from: differs between micro-batches.
std::uint64_t seed_of_call(const RandomPlace& place);

/// Sets RandomPlace::current(), and the generator that LibTorch draws from on this thread, while it lives. `place` must
/// outlive it and may change: begin_call() before every call.
class RandomPlaceGuard {
 public:
  explicit RandomPlaceGuard(const RandomPlace& place);
  ~RandomPlaceGuard();
  RandomPlaceGuard(const RandomPlaceGuard&) = delete;
  RandomPlaceGuard& operator=(const RandomPlaceGuard&) = delete;
};

/// Around one call that may draw on `device`. Nothing on a CPU. Elsewhere, where some operators draw from the device's
/// default generator whatever one does, that generator is seeded from the place, and put back at the end; ranks that
/// share a device run such calls one after another.
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
