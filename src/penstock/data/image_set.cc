#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "penstock/base/error.h"
#include "penstock/data/data.h"
#include "penstock/data/idx.h"

namespace penstock {
namespace {

constexpr double kMnistMean = 0.1307;
constexpr double kMnistStd = 0.3081;
constexpr int kDigits = 10;

/// The two files of a part, without the optional suffix ".gz".
struct Names {
  const char* images;
  const char* labels;
};

constexpr Names kTrain{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"};
constexpr Names kTest{"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

/// The path of `stem` in `folder`, plain or gzip-compressed; empty if there is neither.
std::string find_file(const std::filesystem::path& folder, const char* stem) {
  for (const char* ending : {"", ".gz"}) {
    const std::filesystem::path path = folder / (std::string(stem) + ending);
    std::error_code code;  // ignored: an unreadable file counts as absent, and the caller reports it
    if (std::filesystem::exists(path, code)) return path.string();
  }
  return {};
}

struct Paths {
  std::string images;
  std::string labels;
};

Paths find_mnist(const std::string& directory, const Names& names) {
  const std::filesystem::path root(directory);
  for (const auto& folder : {root, root / "mnist"}) {
    Paths found{find_file(folder, names.images), find_file(folder, names.labels)};
    if (!found.images.empty() && !found.labels.empty()) return found;
  }
  throw DataError(say("no MNIST in '", directory, "' or its folder mnist: '", names.images, "' and '", names.labels,
                      "' are expected, plain or with .gz (the whole set is ", kTrain.images, ", ", kTrain.labels, ", ",
                      kTest.images, ", ", kTest.labels, "); PENSTOCK_DATA can name the folder that has them"));
}

IdxArray read_with_rank(const std::string& path, std::size_t rank) {
  IdxArray array = read_idx(path);
  require<DataError>(array.shape.size() == rank, "'", path, "' has ", array.shape.size(), " dimensions, not ", rank,
                     ": it is not the file that its name says");
  return array;
}

/// The pixels, without a copy.
torch::Tensor tensor_of(IdxArray images) {
  const auto pixels = std::make_shared<std::vector<std::uint8_t>>(std::move(images.bytes));
  return torch::from_blob(
      pixels->data(), {images.shape[0], 1, images.shape[1], images.shape[2]}, [pixels](void*) {}, torch::kUInt8);
}

}  // namespace

ImageSet load_mnist(const std::string& directory, DataPart part) {
  const Paths paths = find_mnist(directory, part == DataPart::train ? kTrain : kTest);
  IdxArray images = read_with_rank(paths.images, 3);
  const IdxArray labels = read_with_rank(paths.labels, 1);
  const std::int64_t count = images.shape[0];
  require<DataError>(count == labels.shape[0], "'", paths.images, "' has ", count, " images and '", paths.labels, "' ",
                     labels.shape[0], " labels: they belong to different sets");
  require<DataError>(!images.bytes.empty(), "'", paths.images, "' has no pixels: ", count, " images of ",
                     images.shape[1], " x ", images.shape[2]);

  ImageSet set;
  set.mean = {kMnistMean};
  set.std = {kMnistStd};
  set.images = tensor_of(std::move(images));
  set.labels = torch::empty({count}, torch::kInt64);
  auto* label = set.labels.data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < labels.bytes.size(); ++i) {
    require<DataError>(labels.bytes[i] < kDigits, "'", paths.labels, "' says that sample ", i, " shows a ",
                       int{labels.bytes[i]}, ": digits are below ", kDigits);
    label[i] = labels.bytes[i];
  }
  return set;
}

Loader mnist(const std::string& directory, const LoaderOptions& options) {
  return Loader(load_mnist(directory, DataPart::train), options);
}

}  // namespace penstock
