#include "penstock/data/data.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "penstock/base/error.h"
#include "penstock/data/data_files.h"

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

constexpr std::size_t kMaxBytes = std::size_t{1} << 30;  // the whole set has 184 MB in 6 files

/// Files of `folder` called `stem`*.bin, by name: data_batch_1.bin before data_batch_2.bin.
std::vector<std::string> find_batches(const std::filesystem::path& folder, const std::string& stem) {
  std::vector<std::string> found;
  std::error_code code;  // ignored: an unreadable folder counts as absent, and the caller reports it
  for (std::filesystem::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(stem) && name.ends_with(".bin")) found.push_back(at->path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// The folder at or below `root` with batches of the Python version of CIFAR-10; empty if there is none.
std::string find_python_version(const std::filesystem::path& root) {
  std::error_code code;
  for (const auto& folder :
       {root, root / "cifar-10-batches-py", root / "cifar10", root / "cifar10/cifar-10-batches-py"})
    for (const char* name : {"data_batch_1", "test_batch"})
      if (std::filesystem::is_regular_file(folder / name, code)) return folder.string();
  return {};
}

std::vector<std::string> find_cifar10(const std::string& directory, DataPart part) {
  const std::string stem = part == DataPart::train ? "data_batch" : "test_batch";
  const std::filesystem::path root(directory);
  for (const auto& folder :
       {root, root / "cifar10", root / "cifar-10-batches-bin", root / "cifar10/cifar-10-batches-bin"})
    if (std::vector<std::string> found = find_batches(folder, stem); !found.empty()) return found;
  if (const std::string python = find_python_version(root); !python.empty())
    throw DataError(say("no CIFAR-10 in the binary version in '", directory, "': '", python,
                        "' holds the Python version, which is pickled; scripts/convert_cifar10.py '", python,
                        "' makes the binary one beside it"));
  throw DataError(say("no CIFAR-10 in '", directory, "' or its folders cifar10 and cifar-10-batches-bin: files '", stem,
                      "*.bin' of the binary version are expected (scripts/fetch_data.sh cifar10 fetches them)"));
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

ImageSet load_cifar10(const std::string& directory, DataPart part) {
  const std::vector<std::string> paths = find_cifar10(directory, part);
  std::vector<std::vector<std::uint8_t>> files;
  std::size_t count = 0;
  for (const std::string& path : paths) {
    files.push_back(read_whole_file(path, kMaxBytes));
    count += count_cifar10_records(files.back(), path);
  }

  ImageSet set;
  set.mean = {0.4914, 0.4822, 0.4465};
  set.std = {0.2023, 0.1994, 0.2010};
  set.images =
      torch::empty({static_cast<std::int64_t>(count), 3, Cifar10Record::side, Cifar10Record::side}, torch::kUInt8);
  set.labels = torch::empty({static_cast<std::int64_t>(count)}, torch::kInt64);
  auto* image = set.images.data_ptr<std::uint8_t>();
  auto* label = set.labels.data_ptr<std::int64_t>();
  for (const std::vector<std::uint8_t>& file : files)
    for (std::size_t at = 0; at < file.size(); at += Cifar10Record::bytes) {
      *label++ = file[at];
      std::memcpy(image, file.data() + at + 1, Cifar10Record::pixels);
      image += Cifar10Record::pixels;
    }
  return set;
}

}  // namespace penstock
