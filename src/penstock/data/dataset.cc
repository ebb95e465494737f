#include "penstock/data/dataset.h"

#include <algorithm>
#include <numeric>

#include "penstock/base/error.h"
#include "penstock/data/sample_source.h"

namespace penstock {

struct Dataset::Step {
  enum class Kind { map, shuffle, repeat, batch };
  Kind kind = Kind::map;
  std::int64_t count = 0;  // size of the shuffle buffer, number of repetitions, or samples per batch
  bool drop_remainder = false;
  RandomMap<Sample> of_samples = {};
  RandomMap<BatchTensors> of_inputs = {};
};

namespace {

/// Removes the batch dimension, which has size 1.
BatchTensors only_rows(const BatchTensors& tensors) {
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& tensor : tensors.list()) all.push_back(tensor.select(0, 0));
  return all;
}

/// Stacks samples, of which there is at least one; with `nothing`, into tensors of 0 rows.
BatchTensors stacked_samples(const std::vector<BatchTensors>& samples, bool nothing) {
  std::vector<torch::Tensor> all;
  for (std::size_t i = 0; i < samples.front().count(); ++i) {
    std::vector<torch::Tensor> rows;
    for (const BatchTensors& sample : samples) {
      require<ConfigError>(sample.count() == samples.front().count(), "a dataset's function gave ",
                           samples.front().count(), " tensors for one sample and ", sample.count(), " for another");
      rows.push_back(sample.list()[i]);
      require<ConfigError>(rows.back().sizes() == rows.front().sizes(), "a dataset's function gave a tensor of shape ",
                           rows.front().sizes(), " for one sample and ", rows.back().sizes(),
                           " for another: samples of a batch need one shape");
    }
    all.push_back(torch::stack(rows));
    if (nothing) all.back() = all.back().slice(0, 0, 0);
  }
  return all;
}

/// Shuffles `items`: each next element is drawn from a buffer and replaced by the following one.
template <class Item>
void shuffle_through_buffer(std::vector<Item>& items, std::int64_t buffer_size, SampleRandom random) {
  std::vector<Item> buffer, drawn;
  drawn.reserve(items.size());
  std::size_t next = 0;
  while (drawn.size() < items.size()) {
    while (next < items.size() && buffer.size() < static_cast<std::size_t>(buffer_size))
      buffer.push_back(items[next++]);
    const auto place = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(buffer.size())));
    drawn.push_back(buffer[place]);
    if (next < items.size()) {
      buffer[place] = items[next++];
    } else {
      buffer[place] = buffer.back();
      buffer.pop_back();
    }
  }
  items = std::move(drawn);
}

constexpr std::uint64_t for_order = 0x6f72646572, for_maps = 0x6d617073;

}  // namespace

/// A sample's number is repetition * size of the set + number within the set.
class Dataset::Source : public OrderedSource {
 public:
  Source(std::shared_ptr<const SampleSource> source, std::vector<std::shared_ptr<const Step>> steps)
      : source_(std::move(source)), steps_(std::move(steps)) {
    for (const auto& step : steps_) {
      if (step->kind == Step::Kind::repeat) repetitions_ *= step->count;
      is_mapped_ = is_mapped_ || step->kind == Step::Kind::map;
      maps_targets_ = maps_targets_ || step->of_samples;
    }
  }

  std::int64_t size() const override { return source_->size() * repetitions_; }

  EpochOrder order(std::uint64_t seed, std::uint64_t epoch) const override {
    const Batches batches = after(steps_.size(), {.seed = seed, .epoch = epoch, .sample = 0});
    EpochOrder order;
    for (const std::vector<std::int64_t>& batch : batches) {
      order.samples.insert(order.samples.end(), batch.begin(), batch.end());
      order.ends.push_back(order.samples.size());
    }
    return order;
  }

  Batch make(const Request& request) const override {
    const auto repetition = [&](std::int64_t number) { return number / source_->size(); };
    const bool alike = std::all_of(request.samples.begin(), request.samples.end(), [&](std::int64_t number) {
      return repetition(number) == repetition(request.samples.front());
    });
    if (alike && !is_mapped_) return plain(request, request.samples, request.inputs);
    std::vector<BatchTensors> inputs, targets;
    for (std::size_t row = 0; row < request.samples.size(); ++row) {
      const bool is_wanted =
          static_cast<std::int64_t>(row) >= request.inputs.begin && static_cast<std::int64_t>(row) < request.inputs.end;
      // Even if no row is wanted, one sample is made for its shape.
      const bool shows_shape = request.inputs.size() == 0 && row == 0;
      Sample sample = mapped(request, request.samples.subspan(row, 1), is_wanted || shows_shape || maps_targets_);
      if (is_wanted || shows_shape) inputs.push_back(std::move(sample.inputs));
      targets.push_back(std::move(sample.targets));
    }
    return {stacked_samples(inputs, request.inputs.size() == 0), stacked_samples(targets, false)};
  }

 private:
  /// Before the batch step, each sample is a batch of its own.
  using Batches = std::vector<std::vector<std::int64_t>>;

  /// The order that the first `count` steps produce in repetition `key.sample`.
  Batches after(std::size_t count, const SampleKey& key) const {
    if (count == 0) {
      Batches all;
      for (std::int64_t i = 0; i < source_->size(); ++i) all.push_back({key.sample * source_->size() + i});
      return all;
    }
    const Step& step = *steps_[count - 1];
    if (step.kind == Step::Kind::repeat) {
      Batches all;
      for (std::int64_t i = 0; i < step.count; ++i) {
        Batches once = after(count - 1, {key.seed, key.epoch, key.sample * step.count + i});
        std::move(once.begin(), once.end(), std::back_inserter(all));
      }
      return all;
    }
    Batches made = after(count - 1, key);
    if (step.kind == Step::Kind::shuffle)
      shuffle_through_buffer(made, step.count, SampleRandom(key, for_order + count));
    if (step.kind == Step::Kind::batch) made = batched(made, step);
    return made;
  }

  static Batches batched(const Batches& singles, const Step& step) {
    Batches all;
    for (const std::vector<std::int64_t>& single : singles) {
      if (all.empty() || all.back().size() == static_cast<std::size_t>(step.count)) all.emplace_back();
      all.back().push_back(single.front());
    }
    if (step.drop_remainder && !all.empty() && all.back().size() < static_cast<std::size_t>(step.count)) all.pop_back();
    return all;
  }

  /// Samples of one repetition, before the maps.
  Batch plain(const Request& request, std::span<const std::int64_t> numbers, RowRange inputs) const {
    std::vector<std::int64_t> samples(numbers.size());
    std::transform(numbers.begin(), numbers.end(), samples.begin(),
                   [&](std::int64_t number) { return number % source_->size(); });
    const auto repetition = static_cast<std::uint64_t>(numbers.empty() ? 0 : numbers.front() / source_->size());
    return source_->make({.samples = samples,
                          .inputs = inputs,
                          .seed = request.seed,
                          .epoch = request.epoch * static_cast<std::uint64_t>(repetitions_) + repetition});
  }

  /// One sample after the maps; without inputs if they are not wanted.
  Sample mapped(const Request& request, std::span<const std::int64_t> number, bool with_inputs) const {
    const Batch row = plain(request, number, with_inputs ? RowRange{0, 1} : RowRange{});
    Sample sample{with_inputs ? only_rows(row.inputs) : BatchTensors{}, only_rows(row.targets)};
    std::uint64_t purpose = for_maps;
    for (const auto& step : steps_) {
      ++purpose;
      SampleRandom random({request.seed, request.epoch, number.front()}, purpose);
      if (step->of_samples) sample = step->of_samples(std::move(sample), random);
      if (step->of_inputs && with_inputs) sample.inputs = step->of_inputs(std::move(sample.inputs), random);
    }
    return sample;
  }

  std::shared_ptr<const SampleSource> source_;
  std::vector<std::shared_ptr<const Step>> steps_;
  std::int64_t repetitions_ = 1;
  bool is_mapped_ = false, maps_targets_ = false;
};

Dataset::Dataset(ImageSet images, const ImageTransforms& transforms)
    : Dataset(image_source(std::move(images), transforms)) {}

Dataset::Dataset(std::shared_ptr<const SampleSource> source) : source_(std::move(source)) {
  require<ConfigError>(source_ && source_->size() > 0, "a dataset of 0 samples has no batches");
}

Dataset::Dataset(const BatchTensors& inputs, const BatchTensors& targets) : Dataset(tensor_source(inputs, targets)) {}

Dataset Dataset::with(Step step) const {
  Dataset other = *this;
  other.steps_.push_back(std::make_shared<const Step>(std::move(step)));
  return other;
}

Dataset Dataset::with_map(RandomMap<Sample> of_samples, RandomMap<BatchTensors> of_inputs) const {
  const bool is_batched =
      std::any_of(steps_.begin(), steps_.end(), [](const auto& step) { return step->kind == Step::Kind::batch; });
  require<ConfigError>(!is_batched, "map() after batch(): its function takes single samples, so call map() first");
  return with({.kind = Step::Kind::map, .of_samples = std::move(of_samples), .of_inputs = std::move(of_inputs)});
}

Dataset Dataset::shuffle(std::int64_t buffer_size) const {
  require<ConfigError>(buffer_size >= 1, "a shuffle buffer of ", buffer_size, ": pass 1 (no shuffling) or more");
  return with({.kind = Step::Kind::shuffle, .count = buffer_size});
}

Dataset Dataset::repeat(std::int64_t times) const {
  require<ConfigError>(times >= 1, "repeat(", times, "): pass 1 or more; epochs repeat without it");
  return with({.kind = Step::Kind::repeat, .count = times});
}

Dataset Dataset::batch(std::int64_t size, bool drop_remainder) const {
  require<ConfigError>(size >= 1, "the batch size must be at least 1, not ", size);
  for (const auto& step : steps_)
    require<ConfigError>(step->kind != Step::Kind::batch, "batch(", size, ") of batches of ", step->count,
                         ": call batch() only once");
  return with({.kind = Step::Kind::batch, .count = size, .drop_remainder = drop_remainder});
}

Dataset::operator std::shared_ptr<const SampleSource>() const {
  const bool is_batched =
      std::any_of(steps_.begin(), steps_.end(), [](const auto& step) { return step->kind == Step::Kind::batch; });
  require<ConfigError>(is_batched, "a dataset for a Loader needs batches: add .batch(32)");
  auto made = std::make_shared<Source>(source_, steps_);
  require<ConfigError>(!made->order(0, 0).ends.empty(), "no batch is left: the remainder that batch() drops is all of ",
                       made->size(), " samples");
  return made;
}

}  // namespace penstock
