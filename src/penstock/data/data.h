// The public header of the module `data`: data sets on disk, and loaders that hand out batches.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "penstock/base/split.h"
#include "penstock/base/tensor.h"
#include "penstock/data/sample_source.h"
#include "penstock/data/tensor_source.h"
#include "penstock/data/text.h"
#include "penstock/data/transforms.h"

namespace penstock {

/// Images as stored, [N, C, H, W] uint8, and labels, [N] int64; and how a pixel becomes a number.
struct ImageSet {
  torch::Tensor images;
  torch::Tensor labels;
  std::vector<double> mean = {0};  // (pixel / 255 - mean) / std; one number for all channels, or one for each
  std::vector<double> std = {1};

  std::int64_t size() const { return labels.defined() ? labels.size(0) : 0; }
};

enum class DataPart { train, test };

/// MNIST from the four IDX files in `directory` (gzip or plain; `directory` itself or its `mnist` folder), with the
/// tutorials' normalisation: mean 0.1307, std 0.3081. Throws DataError naming the file and what is wrong with it.
ImageSet load_mnist(const std::string& directory, DataPart part);

/// CIFAR-10 from the binary version's records (a label byte, then 32 x 32 pixels of red, of green and of blue): every
/// data_batch*.bin, or test_batch*.bin, of `directory` or its folder `cifar10` or `cifar-10-batches-bin`, in the order
/// of their names; so parts of the set do as well as the whole. With its channels' means .4914 .4822 .4465 and standard
/// deviations .2023 .1994 .2010. Throws like load_mnist.
ImageSet load_cifar10(const std::string& directory, DataPart part);

/// Images as samples: normalised, and transformed by (seed, epoch, sample). Throws ConfigError when the set is not what
/// ImageSet says.
std::shared_ptr<const SampleSource> image_source(ImageSet set, const ImageTransforms& transforms = {});

struct LoaderOptions {
  std::int64_t batch_size = 32;  // global: replicas do not change it
  bool shuffle = true;           // by (seed, epoch) alone: the same order for every layout
  std::uint64_t seed = 0;
  bool drop_last = false;           // the short last batch is kept by default
  Part share = {};                  // inputs of this part of every batch alone; the default is the whole batch
  ImageTransforms transforms = {};  // of an ImageSet
  bool inputs = true;               // false: a process that never looks at inputs gets none (0 rows)
  int prefetch = 2;                 // batches prepared ahead, on a thread of the loader's own; 0: none
};

/// Handler out an epoch of batches: `for (auto& [inputs, targets] : loader)`. Movable, not copyable; one epoch at a time;
/// for one thread. Batches are prepared ahead of their use; an error in there is thrown to whoever asks for the batch.
class Loader {
 public:
  /// Throws ConfigError when the options cannot be, or the set is not what ImageSet says.
  Loader(ImageSet set, const LoaderOptions& options);
  /// The same for samples of any kind: text_windows(), or a source of one's own.
  Loader(std::shared_ptr<const SampleSource> source, const LoaderOptions& options);
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  /// Which epoch the next begin() starts; 0 at first, and one more after each begin().
  void set_epoch(std::int64_t epoch);
  std::int64_t batches_per_epoch() const;
  std::int64_t samples() const;

  class Iterator;
  struct Sentinel {};
  Iterator begin();  // starts the epoch; the previous epoch's iterators are dead
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
  std::uint64_t epoch_ = 0;  // which begin() made it: a later one outdates it
  Batch current_;
  bool done_ = false;
};

/// For a test set: in the order as stored, to the last sample, without random transforms. Sizes stay.
LoaderOptions for_test(LoaderOptions options);

/// The training half of MNIST as a loader: what a first program needs.
Loader mnist(const std::string& directory, const LoaderOptions& options = {});

}  // namespace penstock
