#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "penstock/base/error.h"
#include "penstock/data/data.h"
#include "tests/data/real_data.h"

namespace penstock::image_set_test {
namespace {

/// A temporary folder for the test.
class MnistFolder : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_ / "mnist"); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::vector<int>& bytes) const {
    std::ofstream file(folder_ / name, std::ios::binary);
    for (int byte : bytes) file.put(static_cast<char>(byte));
  }

  std::string refusal() const {
    try {
      load_mnist(folder_.string(), DataPart::test);
    } catch (const DataError& error) {
      return error.what();
    }
    return "accepted";
  }

  std::string path(const std::string& name) const { return say("'", (folder_ / name).string(), "'"); }

  const std::filesystem::path folder_ = std::filesystem::path(testing::TempDir()) / "penstock_image_set_test";
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
  write("mnist/" + images_, {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 10, 20, 30, 40});
  write("mnist/" + labels_, {0, 0, 8, 1, 0, 0, 0, 2, 9, 3});
  const ImageSet set = load_mnist(folder_.string(), DataPart::test);
  EXPECT_TRUE(set.images.equal(torch::tensor({10, 20, 30, 40}, torch::kUInt8).view({2, 1, 1, 2})));
  EXPECT_TRUE(set.labels.equal(torch::tensor({9, 3}, torch::kInt64)));

  write(images_, {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 7});
  EXPECT_EQ(load_mnist(folder_.string(), DataPart::test).size(), 2) << "half a set in the folder does not count";
  write(labels_, {0, 0, 8, 1, 0, 0, 0, 1, 1});
  EXPECT_EQ(load_mnist(folder_.string(), DataPart::test).size(), 1);
}

TEST_F(MnistFolder, reports_the_missing_files) {
  EXPECT_EQ(refusal(),
            "no MNIST in '" + folder_.string() +
                "' or its folder mnist: 't10k-images-idx3-ubyte' and "
                "'t10k-labels-idx1-ubyte' are expected, plain or with .gz (the whole set is train-images-idx3-ubyte, "
                "train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte); PENSTOCK_DATA can name "
                "the folder that has them");
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

}  // namespace
}  // namespace penstock::image_set_test
