// The interface from which a Loader reads samples of any kind.
#pragma once

#include <cstdint>
#include <span>

#include "penstock/base/split.h"
#include "penstock/base/tensor.h"
#include "penstock/model/batch_tensors.h"

namespace penstock {

/// One batch: one or several inputs; zero, one or several targets. `targets` always covers the whole (global) batch.
/// `inputs` covers it too or, with LoaderOptions::share, only the rows of one replica's share.
struct Batch {
  BatchTensors inputs;   // images: [rows, C, H, W] float32; text: [rows, T] int64
  BatchTensors targets;  // [rows of the whole batch] int64; text: [rows of the whole batch, T] int64
};

/// Random access to samples by number. Implementations are immutable and thread-safe: several threads of a loader call
/// them at once.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual std::int64_t size() const = 0;

  struct Request {
    std::span<const std::int64_t> samples;  // numbers of the batch's samples, each 0..size()-1
    RowRange inputs;                        // the rows of the batch whose inputs are to be made
    std::uint64_t seed = 0;                 // random choices are functions of (seed, epoch, sample)
    std::uint64_t epoch = 0;
  };
  /// Makes one batch. A source without targets leaves Batch::targets empty; the Loader records the number of samples
  /// there. Prefer plain loops to tensor arithmetic: a kernel could start a second thread pool on a loader's thread.
  virtual Batch make(const Request& request) const = 0;
};

}  // namespace penstock
