#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/data/data.h"
#include "penstock/data/image_writer.h"
#include "penstock/data/permutation.h"
#include "penstock/data/prefetcher.h"

namespace penstock {
namespace {

ImageSet check(ImageSet set) {
  require<ConfigError>(set.images.defined() && set.labels.defined(), "an image set needs images and labels");
  require<ConfigError>(set.images.dim() == 4 && set.images.scalar_type() == torch::kUInt8,
                       "images must be [N, C, H, W] of uint8, not ", set.images.dim(), "-dimensional ",
                       set.images.dtype().name());
  require<ConfigError>(set.labels.dim() == 1 && set.labels.scalar_type() == torch::kInt64,
                       "labels must be [N] of int64, not ", set.labels.dim(), "-dimensional ",
                       set.labels.dtype().name());
  require<ConfigError>(set.images.size(0) == set.labels.size(0), set.images.size(0), " images and ", set.labels.size(0),
                       " labels: each image needs one");
  require<ConfigError>(set.size() > 0, "an image set of 0 samples gives no batches");
  const auto channels = static_cast<std::size_t>(set.images.size(1));
  for (const std::vector<double>* values : {&set.mean, &set.std})
    require<ConfigError>(values->size() == 1 || values->size() == channels, values->size(),
                         " means or standard deviations for ", channels, " channels: give one for all, or one each");
  for (double std : set.std)
    require<ConfigError>(std > 0, "the standard deviation of an image set must be above 0, not ", std);
  set.images = set.images.to(torch::kCPU).contiguous();
  set.labels = set.labels.to(torch::kCPU).contiguous();
  return set;
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
  State(ImageSet the_set, const LoaderOptions& the_options)
      : set(check(std::move(the_set))), options(check(the_options, set.size())), writer(set, options.transforms) {}

  std::int64_t batches() const {
    const std::int64_t whole = set.size() / options.batch_size;
    return whole + (!options.drop_last && set.size() % options.batch_size != 0 ? 1 : 0);
  }

  /// Starts the next epoch. The previous one's thread is stopped first.
  void start_epoch() {
    prefetcher.reset();
    order.clear();
    if (options.shuffle) {
      order = permutation(set.size(), {.seed = options.seed, .epoch = static_cast<std::uint64_t>(epoch)});
    }
    running = static_cast<std::uint64_t>(epoch++);
    ++epochs_started;
    prefetcher.emplace([this, batch = std::int64_t{0}]() mutable -> std::optional<Batch> {
      if (batch == batches()) return std::nullopt;
      return make(batch++);
    }, static_cast<std::size_t>(options.prefetch));
  }

  /// The sample at `position` of the epoch.
  std::int64_t sample(std::int64_t position) const {
    return order.empty() ? position : order[static_cast<std::size_t>(position)];
  }

  Batch make(std::int64_t index) const {
    const std::int64_t begin = index * options.batch_size;
    const std::int64_t count = std::min(options.batch_size, set.size() - begin);
    const RowRange share = options.inputs ? split(count, options.share) : RowRange{};

    Batch batch;
    batch.inputs = torch::empty({share.size(), writer.channels(), writer.height(), writer.width()}, torch::kFloat32);
    batch.targets = torch::empty({count}, torch::kInt64);
    auto* input = batch.inputs.data_ptr<float>();
    for (std::int64_t row = share.begin; row < share.end; ++row)
      input = writer.write({.seed = options.seed, .epoch = running, .sample = sample(begin + row)}, input);
    const auto* label = set.labels.const_data_ptr<std::int64_t>();
    auto* target = batch.targets.data_ptr<std::int64_t>();
    for (std::int64_t row = 0; row < count; ++row) target[row] = label[sample(begin + row)];
    return batch;
  }

  ImageSet set;
  LoaderOptions options;
  ImageWriter writer;
  std::int64_t epoch = 0;  // the next to start
  std::uint64_t running = 0;
  std::uint64_t epochs_started = 0;
  std::vector<std::int64_t> order;              // of the running epoch; empty: as stored
  std::optional<Prefetcher<Batch>> prefetcher;  // last: its thread reads all of the above
};

Loader::Loader(ImageSet set, const LoaderOptions& options) : state_(std::make_unique<State>(std::move(set), options)) {}
Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;

void Loader::set_epoch(std::int64_t epoch) {
  require<ConfigError>(epoch >= 0, "epochs count from 0, not ", epoch);
  state_->epoch = epoch;
}

std::int64_t Loader::batches_per_epoch() const { return state_->batches(); }

std::int64_t Loader::samples() const { return state_->set.size(); }

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
