// Random numbers per sample: each sample's row depends only on (seed, step, call, sample). Internal to this
// module.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include <ATen/core/PhiloxRNGEngine.h>
#include <torch/types.h>

#include "penstock/model/random_place.h"

namespace penstock {

/// The dimension of a tensor that holds the samples.
struct SampleDimension {
  std::int64_t dimension = 0;
  bool flattened = false;  // it holds several consecutive entries per sample
};

/// Fills the `count` numbers of one sample from `bits`.
using FillRow = std::function<void(at::philox_engine& bits, float* numbers, std::int64_t count)>;

/// Returns a tensor of the shape, dtype and device of `like`, filled sample by sample for `place` on the host. Throws
/// ScheduleError, which names the call and `what`, if the dimension of `where` does not contain the samples of the
/// micro-batch.
torch::Tensor draw_by_sample(const torch::Tensor& like, const SampleDimension& where, const RandomPlace& place,
                             const FillRow& fill, std::string_view what);

/// Where the 32 random bits of a number are below `below` it is 0, otherwise `value`.
struct Threshold {
  std::uint64_t below = 0;  // at most 2^32
  float value = 1;
};

/// The same with numbers of a threshold: on a CPU filled in by a loop, on other devices computed there, on the current
/// stream, by operators of integers. The values are the same on every device.
torch::Tensor draw_by_sample(const torch::Tensor& like, const SampleDimension& where, const RandomPlace& place,
                             const Threshold& threshold, std::string_view what);

}  // namespace penstock
