// Data sets put together from functions: map, shuffle, repeat, batch.
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

/// One sample: tensors without the dimension of the batch. Used like a tensor where there is one input or target.
struct Sample {
  BatchTensors inputs;
  BatchTensors targets;
};

/// Samples, what is done to each, and the order and batches in which they come:
///
///   const ps::Dataset train = ps::Dataset(ps::load_cifar10(folder, ps::DataPart::train))
///                                 .map([](ps::Sample sample) { ...; return sample; })
///                                 .shuffle(1000)
///                                 .batch(32, /*drop_remainder=*/true)
///                                 .repeat(2);
///   ps::Loader loader(train, ps::for_this_process(pipeline, {.seed = 1}));
///
/// Each call returns another dataset; nothing is computed before a Loader asks, on its thread, ahead of the step that
/// needs it. Order and random choices are functions of (seed, epoch) and the sample, so every layout of a pipeline gets
/// the same batches. Of LoaderOptions, `batch_size`, `shuffle`, `drop_last` and `transforms` do not apply.
class Dataset {
 public:
  /// Images, transformed and normalised as by image_source().
  explicit Dataset(ImageSet images, const ImageTransforms& transforms = {});
  /// Any source; text_windows() for example.
  explicit Dataset(std::shared_ptr<const SampleSource> source);
  /// Tensors whose dimension 0 counts the samples, as by tensor_source().
  Dataset(const BatchTensors& inputs, const BatchTensors& targets);

  /// `f` makes another sample of each one, Sample(Sample), or with random choices, Sample(Sample, SampleRandom&): use
  /// no other randomness. All samples must come out with tensors of one shape. It must be callable from several threads
  /// at once. Throws ConfigError behind batch(): `f` sees samples.
  template <class Function>
  Dataset map(Function f) const {
    return with_map(random_map<Sample>(std::move(f)), {});
  }

  /// The same for inputs alone, BatchTensors(BatchTensors): a process then leaves out the samples whose inputs it does
  /// not look at, which map() cannot.
  template <class Function>
  Dataset map_inputs(Function f) const {
    return with_map({}, random_map<BatchTensors>(std::move(f)));
  }

  /// A buffer of so many samples (behind batch(): batches), from which each next one is drawn at random while the
  /// following one takes its place. A buffer of the size of the set draws from all orders alike; another order every
  /// epoch, and in every repetition where it stands in front of repeat().
  Dataset shuffle(std::int64_t buffer_size) const;

  /// So many times in one epoch. Random choices differ from repetition to repetition.
  Dataset repeat(std::int64_t times) const;

  /// Once, behind map(). What is left over for the last batch is a smaller one, or dropped.
  Dataset batch(std::int64_t size, bool drop_remainder = false) const;

  /// What a Loader takes. Throws ConfigError without batch(), and where no batch is left.
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
