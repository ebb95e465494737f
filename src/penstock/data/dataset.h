// Data sets composed of transformations: map, shuffle, repeat, batch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "penstock/data/data.h"
#include "penstock/data/sample_random.h"

namespace penstock {

/// One sample: tensors without the batch dimension.
struct Sample {
  BatchTensors inputs;
  BatchTensors targets;
};

/// A lazy chain of transformations of samples, with their order and batches:
///
///   const ps::Dataset train = ps::Dataset(ps::load_cifar10(folder, ps::DataPart::train))
///                                 .map([](ps::Sample sample) { ...; return sample; })
///                                 .shuffle(1000)
///                                 .batch(32, /*drop_remainder=*/true)
///                                 .repeat(2);
///   ps::Loader loader(train, ps::for_this_process(pipeline, {.seed = 1}));
///
/// Each call returns a new dataset and computes nothing; a Loader computes the batches ahead, on its threads. Order and
/// random choices are functions of (seed, epoch) and the sample, so every layout of a pipeline gets the same batches.
/// The LoaderOptions `batch_size`, `shuffle`, `drop_last` and `transforms` have no effect on a Dataset.
class Dataset {
 public:
  /// Images, transformed and normalised as by image_source(). Throws like image_source().
  explicit Dataset(ImageSet images, const ImageTransforms& transforms = {});
  /// Any source, text_windows() for example. Throws ConfigError for a null or empty source.
  explicit Dataset(std::shared_ptr<const SampleSource> source);
  /// Tensors with the samples along dimension 0, as for tensor_source(). Throws like tensor_source().
  Dataset(const BatchTensors& inputs, const BatchTensors& targets);

  /// Applies `f` to every sample. `f` is Sample(Sample) or, for random transformations, Sample(Sample, SampleRandom&);
  /// it must use no other source of randomness, must return tensors of equal shapes for all samples, and is called from
  /// several threads at once. Throws ConfigError after batch(), because `f` takes single samples.
  template <class Function>
  Dataset map(Function f) const {
    return with_map(random_map<Sample>(std::move(f)), {});
  }

  /// As map(), for inputs alone: `f` is BatchTensors(BatchTensors) or BatchTensors(BatchTensors, SampleRandom&).
  /// Cheaper than map() with several processes: each calls `f` only for the samples whose inputs it loads.
  template <class Function>
  Dataset map_inputs(Function f) const {
    return with_map({}, random_map<BatchTensors>(std::move(f)));
  }

  /// Shuffles with a buffer of `buffer_size` samples (after batch(): batches): each next sample is drawn uniformly from
  /// the buffer and replaced by the following one of the set. With a buffer as large as the set all orders are equally
  /// likely. The order differs between epochs and, before repeat(), between repetitions. Throws ConfigError for a size
  /// below 1.
  Dataset shuffle(std::int64_t buffer_size) const;

  /// Repeats the data set `times` times within one epoch, with different random choices in each repetition. Throws
  /// ConfigError for fewer than 1.
  Dataset repeat(std::int64_t times) const;

  /// Combines `size` consecutive samples into a batch; the last one may be smaller, or is dropped. Call it once, after
  /// map(). Throws ConfigError for a size below 1 and for a second call.
  Dataset batch(std::int64_t size, bool drop_remainder = false) const;

  /// The source for a Loader. Throws ConfigError if batch() was not called or if there is no batch.
  operator std::shared_ptr<const SampleSource>() const;  // NOLINT: implicitly

 private:
  template <class Value>
  using RandomMap = std::function<Value(Value, SampleRandom&)>;

  template <class Value, class Function>
  static RandomMap<Value> random_map(Function f) {
    if constexpr (std::is_invocable_v<Function&, Value, SampleRandom&>)
      return f;
    else
      return [f = std::move(f)](Value value, SampleRandom&) -> Value { return f(std::move(value)); };
  }

  struct Step;
  class Source;

  Dataset with_map(RandomMap<Sample> of_samples, RandomMap<BatchTensors> of_inputs) const;
  Dataset with(Step step) const;

  std::shared_ptr<const SampleSource> source_;
  std::vector<std::shared_ptr<const Step>> steps_;
};

}  // namespace penstock
