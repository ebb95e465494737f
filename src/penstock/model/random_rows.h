// Random numbers by sample: each sample's row is a function of (seed, step, call, sample) alone. Inside this module
// only.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include <ATen/core/PhiloxRNGEngine.h>
#include <torch/types.h>

#include "penstock/model/random_place.h"

namespace penstock {

/// Where a tensor's samples are.
struct SampleDimension {
  std::int64_t dimension = 0;
  bool flattened = false;  // it holds several entries of each sample, one sample after the other
};

/// Fills `count` numbers of one sample.
using FillRow = std::function<void(at::philox_engine& bits, float* numbers, std::int64_t count)>;

/// A tensor like `like`, drawn sample by sample at `place`. Throws ScheduleError, naming the call and `what`, where the
/// dimension of `where` does not hold the micro-batch's samples.
torch::Tensor draw_by_sample(const torch::Tensor& like, const SampleDimension& where, const RandomPlace& place,
                             const FillRow& fill, std::string_view what);

}  // namespace penstock
