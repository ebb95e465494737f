#include <algorithm>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <dlfcn.h>

#include <ATen/Parallel.h>

#include "penstock/base/error.h"
#include "penstock/data/data.h"
#include "penstock/data/prefetcher.h"
#include "penstock/data/sample_random.h"
#include "penstock/data/sample_source.h"

namespace penstock {
namespace {

std::shared_ptr<const SampleSource> check(std::shared_ptr<const SampleSource> source) {
  require<ConfigError>(source != nullptr && source->size() > 0, "a loader of 0 samples has no batches");
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

/// One thread; a few on large machines. On small ones more would take cores from the ranks.
std::size_t prefetch_workers() { return std::clamp(std::thread::hardware_concurrency() / 8, 1U, 4U); }

/// Limits tensor operations of a source to this thread, so that they start no thread pool beside those of the ranks.
/// at::set_num_threads would also change the number for future threads; OpenMP's function affects this thread only.
void compute_on_this_thread_alone() {
  thread_local bool is_done = false;
  if (std::exchange(is_done, true)) return;
  at::get_num_threads();  // initialises LibTorch on this thread, which would overwrite the setting later
  using SetThreads = void (*)(int);
  if (const auto set_threads = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))) set_threads(1);
}

}  // namespace

struct Loader::State {
  State(std::shared_ptr<const SampleSource> the_source, const LoaderOptions& the_options)
      : source(check(std::move(the_source))),
        ordered(dynamic_cast<const OrderedSource*>(source.get())),
        options(check(ordered ? without_batches(the_options) : the_options, source->size())),
        batch_count(ordered ? static_cast<std::int64_t>(ordered->order(options.seed, 0).ends.size()) : batches()) {}

  /// Neutralises the options that an OrderedSource replaces, so that check() does not reject them.
  static LoaderOptions without_batches(LoaderOptions options) {
    options.batch_size = 1;
    options.drop_last = false;
    return options;
  }

  std::int64_t batches() const {
    const std::int64_t whole = source->size() / options.batch_size;
    return whole + (!options.drop_last && source->size() % options.batch_size != 0 ? 1 : 0);
  }

  /// Starts the next epoch, after stopping the threads of the previous one.
  void start_epoch() {
    prefetcher.reset();
    if (ordered) {
      EpochOrder of_epoch = ordered->order(options.seed, static_cast<std::uint64_t>(epoch));
      order = std::move(of_epoch.samples);
      ends = std::move(of_epoch.ends);
    } else if (options.shuffle) {
      order = permutation(source->size(), {.seed = options.seed, .epoch = static_cast<std::uint64_t>(epoch)});
    } else if (order.empty()) {
      order.resize(static_cast<std::size_t>(source->size()));
      std::iota(order.begin(), order.end(), std::int64_t{0});
    }
    running = static_cast<std::uint64_t>(epoch++);
    ++epochs_started;
    const PrefetchOptions ahead{.ahead = static_cast<std::size_t>(options.prefetch), .workers = prefetch_workers()};
    prefetcher.emplace(
        [this, first = std::exchange(skipped, 0)](std::int64_t number) -> std::optional<Batch> {
          const std::int64_t batch = first + number;
          if (options.prefetch > 0) compute_on_this_thread_alone();
          if (batch >= batch_count) return std::nullopt;
          return make(batch);
        },
        ahead);
  }

  Batch make(std::int64_t index) const {
    const std::size_t begin = begin_of(index);
    const std::size_t count = begin_of(index + 1) - begin;
    const auto samples = static_cast<std::int64_t>(count);
    Batch made = source->make({.samples = std::span(order).subspan(begin, count),
                               .inputs = options.inputs ? split(samples, options.share) : RowRange{},
                               .seed = options.seed,
                               .epoch = running});
    // Without targets, a process that reads no inputs or only a share could not know the number of samples.
    if (made.targets.count() == 0) made.targets = BatchTensors::none(samples);
    return made;
  }

  /// The index in `order` at which the batch begins.
  std::size_t begin_of(std::int64_t index) const {
    if (ordered) return index == 0 ? 0 : ends[static_cast<std::size_t>(index - 1)];
    return std::min(static_cast<std::size_t>(index * options.batch_size), order.size());
  }

  std::shared_ptr<const SampleSource> source;
  const OrderedSource* ordered;  // `source`, if it determines the order; else null
  LoaderOptions options;
  std::int64_t batch_count;
  std::int64_t epoch = 0;    // of the next begin()
  std::int64_t skipped = 0;  // batches that the next begin() leaves out
  std::uint64_t running = 0;
  std::uint64_t epochs_started = 0;
  std::vector<std::int64_t> order;              // of the current epoch
  std::vector<std::size_t> ends;                // ends of its batches, for an OrderedSource
  std::optional<Prefetcher<Batch>> prefetcher;  // last member: its threads read the members above
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

void Loader::skip_batches(std::int64_t batches) {
  require<ConfigError>(batches >= 0 && batches <= state_->batch_count, "leaving out ", batches, " of ",
                       state_->batch_count, " batches: pass a number from 0 to that");
  state_->skipped = batches;
}

std::uint64_t Loader::seed() const { return state_->options.seed; }

std::int64_t Loader::batches_per_epoch() const { return state_->batch_count; }

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
  // Images keep their size of training.
  const ImageTransforms& training = options.transforms;
  options.transforms = {.resize = training.resize > 0 ? training.resize : training.resized_crop.size};
  return options;
}

}  // namespace penstock
