#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/data/data.h"
#include "penstock/data/permutation.h"
#include "penstock/data/prefetcher.h"

namespace penstock {
namespace {

std::shared_ptr<const SampleSource> check(std::shared_ptr<const SampleSource> source) {
  require<ConfigError>(source != nullptr && source->size() > 0, "a loader of 0 samples gives no batches");
  return source;
}

LoaderOptions check(const LoaderOptions& options, std::int64_t samples) {
  require<ConfigError>(options.batch_size > 0, "the batch size must be at least 1, not ", options.batch_size);
  require<ConfigError>(options.share.of > 0 && options.share.index >= 0 && options.share.index < options.share.of,
                       "share ", options.share.index, " of ", options.share.of,
                       " does not exist: the index counts from 0");
  require<ConfigError>(options.prefetch >= 0, "prefetch must be 0 (none) or more batches, not ", options.prefetch);
  require<ConfigError>(!options.drop_last || options.batch_size <= samples, "batches of ", options.batch_size,
                       " with the short last one dropped leave nothing of ", samples,
                       " samples: take smaller batches or keep the last");
  return options;
}

}  // namespace

struct Loader::State {
  State(std::shared_ptr<const SampleSource> the_source, const LoaderOptions& the_options)
      : source(check(std::move(the_source))), options(check(the_options, source->size())) {}

  std::int64_t batches() const {
    const std::int64_t whole = source->size() / options.batch_size;
    return whole + (!options.drop_last && source->size() % options.batch_size != 0 ? 1 : 0);
  }

  /// Starts the next epoch. The previous one's thread is stopped first.
  void start_epoch() {
    prefetcher.reset();
    if (options.shuffle) {
      order = permutation(source->size(), {.seed = options.seed, .epoch = static_cast<std::uint64_t>(epoch)});
    } else if (order.empty()) {
      order.resize(static_cast<std::size_t>(source->size()));
      std::iota(order.begin(), order.end(), std::int64_t{0});
    }
    running = static_cast<std::uint64_t>(epoch++);
    ++epochs_started;
    prefetcher.emplace([this, batch = std::int64_t{0}]() mutable -> std::optional<Batch> {
      if (batch == batches()) return std::nullopt;
      return make(batch++);
    }, static_cast<std::size_t>(options.prefetch));
  }

  Batch make(std::int64_t index) const {
    const auto begin = static_cast<std::size_t>(index * options.batch_size);
    const std::size_t count = std::min(static_cast<std::size_t>(options.batch_size), order.size() - begin);
    const auto samples = static_cast<std::int64_t>(count);
    Batch made = source->make({.samples = std::span(order).subspan(begin, count),
                               .inputs = options.inputs ? split(samples, options.share) : RowRange{},
                               .seed = options.seed,
                               .epoch = running});
    // A process that reads no inputs, or a share of them, could not count the samples otherwise.
    if (made.targets.count() == 0) made.targets = BatchTensors::none(samples);
    return made;
  }

  std::shared_ptr<const SampleSource> source;
  LoaderOptions options;
  std::int64_t epoch = 0;  // the next to start
  std::uint64_t running = 0;
  std::uint64_t epochs_started = 0;
  std::vector<std::int64_t> order;              // of the running epoch
  std::optional<Prefetcher<Batch>> prefetcher;  // last: its thread reads all of the above
};

Loader::Loader(std::shared_ptr<const SampleSource> source, const LoaderOptions& options)
    : state_(std::make_unique<State>(std::move(source), options)) {}
Loader::Loader(ImageSet set, const LoaderOptions& options)
    : Loader(image_source(std::move(set), options.transforms), options) {}
Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;

void Loader::set_epoch(std::int64_t epoch) {
  require<ConfigError>(epoch >= 0, "epochs count from 0, not ", epoch);
  state_->epoch = epoch;
}

std::int64_t Loader::batches_per_epoch() const { return state_->batches(); }

std::int64_t Loader::samples() const { return state_->source->size(); }

Loader::Iterator Loader::begin() {
  state_->start_epoch();
  Iterator first;
  first.state_ = state_.get();
  first.epoch_ = state_->epochs_started;
  ++first;
  return first;
}

Loader::Iterator& Loader::Iterator::operator++() {
  require<ConfigError>(epoch_ == state_->epochs_started,
                       "this iterator's epoch is over, because a later begin() started another: use one at a time");
  std::optional<Batch> next = state_->prefetcher->next();
  done_ = !next;
  current_ = next ? std::move(*next) : Batch{};
  return *this;
}

LoaderOptions for_test(LoaderOptions options) {
  options.shuffle = options.drop_last = false;
  options.transforms = {.resize = options.transforms.resize};
  return options;
}

}  // namespace penstock
