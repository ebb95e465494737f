// What a Loader reads from, whatever kind of samples it has.
#pragma once

#include <cstdint>
#include <span>

#include "penstock/base/split.h"
#include "penstock/base/tensor.h"
#include "penstock/model/batch_tensors.h"

namespace penstock {

/// One batch: a tensor or several as inputs; none, one or several as targets. `targets` always covers the whole
/// (global) batch; `inputs` covers it too, or only the rows of one replica's share where the loader was asked for one.
struct Batch {
  BatchTensors inputs;   // images: [rows, C, H, W] float32; text: [rows, T] int64
  BatchTensors targets;  // [rows of the whole batch] int64; text: [rows of the whole batch, T] int64
};

/// Samples by number. Implementations are immutable: a loader's thread asks while others look.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual std::int64_t size() const = 0;

  struct Request {
    std::span<const std::int64_t> samples;  // of the whole batch, each 0..size()-1
    RowRange inputs;                        // for these of them inputs are wanted
    std::uint64_t seed = 0;                 // random choices go by (seed, epoch, sample) alone
    std::uint64_t epoch = 0;
  };
  /// Without targets, Batch::targets is left empty: the Loader notes the number of samples there.
  /// Runs plain loops rather than tensor arithmetic, which could start a second pool of threads on a loader's thread.
  virtual Batch make(const Request& request) const = 0;
};

}  // namespace penstock
