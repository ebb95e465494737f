// The public header of the module `data`: data sets on disk, and loaders that hand out batches.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "penstock/base/split.h"
#include "penstock/base/tensor.h"
#include "penstock/data/sample_source.h"
#include "penstock/data/text.h"
#include "penstock/data/transforms.h"

namespace penstock {

/// Images with labels, and the normalisation of pixels: (pixel / 255 - mean) / std.
struct ImageSet {
  torch::Tensor images;            // [N, C, H, W] uint8, as stored
  torch::Tensor labels;            // [N] int64
  std::vector<double> mean = {0};  // one number for all channels, or one per channel
  std::vector<double> std = {1};   // likewise, above 0

  std::int64_t size() const { return labels.defined() ? labels.size(0) : 0; }
};

enum class DataPart { train, test };

/// Loads one part of MNIST from its two IDX files (gzip-compressed or plain) in `directory` or its folder `mnist`.
/// Normalisation: mean 0.1307, std 0.3081. Throws DataError, which names the file and the error.
ImageSet load_mnist(const std::string& directory, DataPart part);

/// Loads CIFAR-10 in its binary version (records of a label byte, then 32 x 32 pixels of red, of green and of blue):
/// all files data_batch*.bin, or test_batch*.bin, of `directory` or its folder `cifar10` or `cifar-10-batches-bin`, in
/// the order of their names. A subset of the files is accepted. Normalisation per channel: means .4914 .4822 .4465,
/// standard deviations .2023 .1994 .2010. Throws like load_mnist.
ImageSet load_cifar10(const std::string& directory, DataPart part);

/// Makes samples of images: inputs [C, H, W] float32, normalised and transformed; targets int64. Random transforms
/// depend on (seed, epoch, sample). Throws ConfigError if shapes or dtypes differ from those of ImageSet, or for
/// invalid transforms.
std::shared_ptr<const SampleSource> image_source(ImageSet set, const ImageTransforms& transforms = {});

struct LoaderOptions {
  std::int64_t batch_size = 32;  // of the global batch, whatever the number of replicas
  bool shuffle = true;           // the order depends only on (seed, epoch), equal for every layout
  std::uint64_t seed = 0;
  bool drop_last = false;           // true: omit a last batch that is smaller than batch_size
  Part share = {};                  // the part of every batch whose inputs are loaded; default: the whole batch
  ImageTransforms transforms = {};  // for an ImageSet only
  bool inputs = true;               // false: load no inputs (0 rows), for processes that do not read them
  int prefetch = 2;                 // batches prepared ahead on threads of the loader; 0: none, without threads
};

/// Iterates over the batches of an epoch: `for (auto& [inputs, targets] : loader)`. Movable, not copyable. Not
/// thread-safe; only one epoch can run at a time. Batches are prepared ahead on threads of the loader; an exception
/// there is thrown by the increment (or begin()) that would have returned the batch.
class Loader {
 public:
  /// A loader of images; see image_source(). Throws ConfigError for invalid options or an invalid set.
  Loader(ImageSet set, const LoaderOptions& options);
  /// A loader of samples of any kind: text_windows(), tensor_source(), a Dataset, or an implementation of SampleSource.
  Loader(std::shared_ptr<const SampleSource> source, const LoaderOptions& options);
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  /// Sets the number of the epoch that the next begin() starts. Initially 0; each begin() increments it.
  void set_epoch(std::int64_t epoch);
  /// The next begin() leaves out the first `batches` of its epoch, without reading them.
  void skip_batches(std::int64_t batches);
  std::uint64_t seed() const;  // LoaderOptions::seed
  std::int64_t batches_per_epoch() const;
  std::int64_t samples() const;  // in the source

  class Iterator;
  struct Sentinel {};
  Iterator begin();  // starts an epoch and invalidates the iterators of the previous one
  Sentinel end() const { return {}; }

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class Loader::Iterator {
 public:
  Batch& operator*() { return current_; }
  Batch* operator->() { return &current_; }
  Iterator& operator++();
  bool operator==(Sentinel) const { return done_; }

 private:
  friend class Loader;
  State* state_ = nullptr;
  std::uint64_t epoch_ = 0;  // number of the begin() that made it, to detect use after a later begin()
  Batch current_;
  bool done_ = false;
};

/// Returns `options` for a test set: stored order, all samples, no random transforms. Image sizes stay as in training.
LoaderOptions for_test(LoaderOptions options);

/// A loader of the training set of MNIST: load_mnist() and Loader in one call.
Loader mnist(const std::string& directory, const LoaderOptions& options = {});

}  // namespace penstock
