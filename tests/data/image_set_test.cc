// MNIST and CIFAR-10, as files of a test and the real ones.
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "penstock/base/error.h"
#include "penstock/data/data.h"
#include "tests/base/error_text.h"
#include "tests/data/real_data.h"
#include "tests/support/temporary_folder.h"

namespace penstock::test::image_set_test {
namespace {

class DataFolder : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& bytes) const { write_bytes(files_ / name, bytes); }
  std::string path(const std::string& name) const { return say("'", files_ / name, "'"); }

  const TemporaryFolder files_{"image_set"};
  const std::string folder_ = files_.string();
};

class MnistFolder : public DataFolder {
 protected:
  void write(const std::string& name, const std::vector<int>& bytes) const {
    DataFolder::write(name, {bytes.begin(), bytes.end()});
  }
  std::string refusal() const {
    return error_text<DataError>([&] { load_mnist(folder_, DataPart::test); });
  }

  const std::string images_ = "t10k-images-idx3-ubyte";
  const std::string labels_ = "t10k-labels-idx1-ubyte";
};

TEST(Mnist, has_60000_and_10000_images) {
  for (const std::string& directory : {real_data(), real_data() + "/mnist"}) {
    const ImageSet train = load_mnist(directory, DataPart::train);
    EXPECT_EQ(train.size(), 60000);
    EXPECT_EQ(train.images.sizes(), (std::vector<std::int64_t>{60000, 1, 28, 28}));
    EXPECT_EQ(train.images.dtype(), torch::kUInt8);
    EXPECT_EQ(train.labels.dtype(), torch::kInt64);
    EXPECT_EQ(train.mean, std::vector<double>{0.1307});
    EXPECT_EQ(train.std, std::vector<double>{0.3081});
    EXPECT_TRUE(train.labels.narrow(0, 0, 10).equal(torch::tensor({5, 0, 4, 1, 9, 2, 1, 3, 1, 4}, torch::kInt64)));

    const ImageSet test = load_mnist(directory, DataPart::test);
    EXPECT_EQ(test.images.sizes(), (std::vector<std::int64_t>{10000, 1, 28, 28}));
    EXPECT_TRUE(test.labels.narrow(0, 0, 5).equal(torch::tensor({7, 2, 1, 0, 4}, torch::kInt64)));
  }
}

TEST_F(MnistFolder, reads_plain_files_in_the_folder_or_in_mnist) {
  std::filesystem::create_directory(files_ / "mnist");
  write("mnist/" + images_, {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 10, 20, 30, 40});
  write("mnist/" + labels_, {0, 0, 8, 1, 0, 0, 0, 2, 9, 3});
  const ImageSet set = load_mnist(folder_, DataPart::test);
  EXPECT_TRUE(set.images.equal(torch::tensor({10, 20, 30, 40}, torch::kUInt8).view({2, 1, 1, 2})));
  EXPECT_TRUE(set.labels.equal(torch::tensor({9, 3}, torch::kInt64)));

  write(images_, {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 7});
  EXPECT_EQ(load_mnist(folder_, DataPart::test).size(), 2) << "half a set in the folder does not count";
  write(labels_, {0, 0, 8, 1, 0, 0, 0, 1, 1});
  EXPECT_EQ(load_mnist(folder_, DataPart::test).size(), 1);
}

TEST_F(MnistFolder, reports_the_missing_files) {
  EXPECT_TRUE(says(refusal(), "no MNIST in '" + folder_ + "' or its folder mnist: ", "plain or with .gz",
                   "'t10k-images-idx3-ubyte' and 't10k-labels-idx1-ubyte' are expected", "train-images-idx3-ubyte",
                   "train-labels-idx1-ubyte", "PENSTOCK_DATA can name the folder"));
}

TEST_F(MnistFolder, refuses_files_that_do_not_belong_together) {
  write(images_, {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 10, 20});
  write(labels_, {0, 0, 8, 1, 0, 0, 0, 3, 1, 2, 3});
  EXPECT_EQ(refusal(),
            path(images_) + " has 2 images and " + path(labels_) + " 3 labels: they belong to different sets");
  write(labels_, {0, 0, 8, 1, 0, 0, 0, 2, 1, 10});
  EXPECT_EQ(refusal(), path(labels_) + " says that sample 1 shows a 10: digits are below 10");
  write(labels_, {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 10, 20});
  EXPECT_EQ(refusal(), path(labels_) + " has 3 dimensions, not 1: it is not the file that its name says");
  write(images_, {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1});
  write(labels_, {0, 0, 8, 1, 0, 0, 0, 2, 1, 2});
  EXPECT_EQ(refusal(), path(images_) + " has no pixels: 2 images of 0 x 1");
}

/// A record whose pixels are all `pixel` in red, `pixel` + 1 in green and `pixel` + 2 in blue.
std::string record(int label, int pixel) {
  std::string bytes(1, static_cast<char>(label));
  for (int plane = 0; plane < 3; ++plane) bytes += std::string(1024, static_cast<char>(pixel + plane));
  return bytes;
}

class Cifar10Folder : public DataFolder {
 protected:
  std::string refusal() const {
    return error_text<DataError>([&] { load_cifar10(folder_, DataPart::train); });
  }
};

TEST_F(Cifar10Folder, reads_all_batch_files_in_the_order_of_their_names) {
  std::filesystem::create_directory(files_ / "cifar-10-batches-bin");
  write("cifar-10-batches-bin/data_batch_2.bin", record(3, 20));
  write("cifar-10-batches-bin/data_batch_1.bin", record(9, 5) + record(0, 200));
  write("cifar-10-batches-bin/test_batch.bin", record(1, 1));
  write("cifar-10-batches-bin/batches.meta.txt", "airplane");
  const ImageSet train = load_cifar10(folder_, DataPart::train);
  EXPECT_TRUE(train.labels.equal(torch::tensor({9, 0, 3}, torch::kInt64)));
  ASSERT_EQ(train.images.sizes(), (torch::IntArrayRef{3, 3, 32, 32}));
  for (int plane = 0; plane < 3; ++plane) {
    EXPECT_TRUE(train.images[0][plane].eq(5 + plane).all().item<bool>());
    EXPECT_TRUE(train.images[1][plane].eq(200 + plane).all().item<bool>());
    EXPECT_TRUE(train.images[2][plane].eq(20 + plane).all().item<bool>());
  }
  EXPECT_EQ(train.mean, (std::vector<double>{0.4914, 0.4822, 0.4465}));
  EXPECT_EQ(train.std, (std::vector<double>{0.2023, 0.1994, 0.2010}));
  EXPECT_EQ(load_cifar10(files_ / "cifar-10-batches-bin", DataPart::test).size(), 1);
}

TEST_F(Cifar10Folder, reports_the_missing_files) {
  EXPECT_TRUE(says(refusal(), "no CIFAR-10 in '" + folder_ + "' or its folders cifar10 and cifar-10-batches-bin: ",
                   "files 'data_batch*.bin' of the binary version", "scripts/fetch_data.sh cifar10"));
}

TEST_F(Cifar10Folder, suggests_the_converter_for_the_python_version) {
  const std::string python = files_ / "cifar-10-batches-py";
  std::filesystem::create_directory(python);
  write("cifar-10-batches-py/data_batch_1", "pickled");
  EXPECT_TRUE(says(refusal(), "no CIFAR-10 in the binary version in '" + folder_ + "'", "'" + python + "' holds the ",
                   "scripts/convert_cifar10.py '" + python + "'"));
}

TEST_F(Cifar10Folder, refuses_incomplete_files) {
  write("data_batch_1.bin", record(1, 1) + "abc");
  EXPECT_TRUE(says(refusal(), path("data_batch_1.bin") + " has 3076 bytes, which is 1 records of 3073 and 3 bytes "));
  write("data_batch_1.bin", "");
  EXPECT_EQ(refusal(), path("data_batch_1.bin") + " has no records: it is empty");
  write("data_batch_1.bin", record(1, 1) + record(10, 1));
  EXPECT_EQ(refusal(), path("data_batch_1.bin") + " says that sample 1 is of class 10: classes are below 10");
}

TEST(Cifar10, the_real_images) {
  const ImageSet train = load_cifar10(real_data(), DataPart::train);
  const ImageSet test = load_cifar10(real_data(), DataPart::test);
  // The first 4,000 and 1,000 images, or all.
  EXPECT_GE(train.size(), 4000);
  EXPECT_GE(test.size(), 1000);
  EXPECT_TRUE(train.labels.narrow(0, 0, 5).equal(torch::tensor({6, 9, 9, 4, 1}, torch::kInt64)));
  EXPECT_TRUE(test.labels.narrow(0, 0, 5).equal(torch::tensor({3, 8, 8, 0, 6}, torch::kInt64)));
  EXPECT_EQ(train.images[0][0][0][0].item<int>(), 59);

  Loader loader(std::move(train), {.batch_size = 500, .shuffle = false});
  torch::Tensor sum = torch::zeros(3, torch::kFloat64);
  for (auto& [inputs, targets] : loader) sum += inputs[0].to(torch::kFloat64).mean({0, 2, 3});
  EXPECT_LT((sum / loader.batches_per_epoch()).abs().max().item<double>(), 0.05);
}

}  // namespace
}  // namespace penstock::test::image_set_test
