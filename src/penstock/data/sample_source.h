// The interface from which a Loader reads samples of any kind, and the samples of tensors in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

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

/// The numbers of an epoch's samples in order, and the end of each batch as an index into them.
struct EpochOrder {
  std::vector<std::int64_t> samples;
  std::vector<std::size_t> ends;
};

/// For such a source, a Loader uses order() in place of its options batch_size, shuffle and drop_last.
class OrderedSource : public SampleSource {
 public:
  /// A pure function. All epochs have the same number of batches.
  virtual EpochOrder order(std::uint64_t seed, std::uint64_t epoch) const = 0;
};

/// Makes a source of the samples of `inputs` and `targets`, which may be empty: `tensor_source({tokens, mask},
/// labels)`. `dims` holds the sample dimensions of the tensors and of the resulting batches, as
/// PipelineOptions::batch_dims. Tensors without samples are part of every batch as they are. The source shares the
/// tensors' memory: do not modify them while it lives. Throws ConfigError if the tensors differ in the number of
/// samples, or if the inputs
/// have none.
std::shared_ptr<const SampleSource> tensor_source(const BatchTensors& inputs, const BatchTensors& targets = {},
                                                  const BatchDims& dims = {});

}  // namespace penstock
