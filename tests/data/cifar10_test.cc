#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "penstock/base/error.h"
#include "penstock/data/data.h"
#include "tests/base/error_text.h"
#include "tests/data/real_data.h"

namespace penstock::test::cifar10_test {
namespace {

/// A record whose pixels are all `pixel` in red, `pixel` + 1 in green and `pixel` + 2 in blue.
std::string record(int label, int pixel) {
  std::string bytes(1, static_cast<char>(label));
  for (int plane = 0; plane < 3; ++plane) bytes += std::string(1024, static_cast<char>(pixel + plane));
  return bytes;
}

/// A temporary folder for the test.
class Cifar10Folder : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_ / "cifar-10-batches-bin"); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  std::string refusal() const {
    return error_text<DataError>([&] { load_cifar10(folder_.string(), DataPart::train); });
  }
  std::string path(const std::string& name) const { return say("'", (folder_ / name).string(), "'"); }

  const std::filesystem::path folder_ = std::filesystem::path(testing::TempDir()) / "penstock_cifar10_test";
};

TEST_F(Cifar10Folder, reads_all_batch_files_in_the_order_of_their_names) {
  write("cifar-10-batches-bin/data_batch_2.bin", record(3, 20));
  write("cifar-10-batches-bin/data_batch_1.bin", record(9, 5) + record(0, 200));
  write("cifar-10-batches-bin/test_batch.bin", record(1, 1));
  write("cifar-10-batches-bin/batches.meta.txt", "airplane");
  const ImageSet train = load_cifar10(folder_.string(), DataPart::train);
  EXPECT_TRUE(train.labels.equal(torch::tensor({9, 0, 3}, torch::kInt64)));
  ASSERT_EQ(train.images.sizes(), (torch::IntArrayRef{3, 3, 32, 32}));
  for (int plane = 0; plane < 3; ++plane) {
    EXPECT_TRUE(train.images[0][plane].eq(5 + plane).all().item<bool>());
    EXPECT_TRUE(train.images[1][plane].eq(200 + plane).all().item<bool>());
    EXPECT_TRUE(train.images[2][plane].eq(20 + plane).all().item<bool>());
  }
  EXPECT_EQ(train.mean, (std::vector<double>{0.4914, 0.4822, 0.4465}));
  EXPECT_EQ(train.std, (std::vector<double>{0.2023, 0.1994, 0.2010}));
  EXPECT_EQ(load_cifar10((folder_ / "cifar-10-batches-bin").string(), DataPart::test).size(), 1);
}

TEST_F(Cifar10Folder, reports_the_missing_files) {
  EXPECT_EQ(
      refusal(),
      "no CIFAR-10 in '" + folder_.string() +
          "' or its folders cifar10 and cifar-10-batches-bin: "
          "files 'data_batch*.bin' of the binary version are expected (scripts/fetch_data.sh cifar10 fetches them)");
}

TEST_F(Cifar10Folder, suggests_the_converter_for_the_python_version) {
  std::filesystem::create_directories(folder_ / "cifar-10-batches-py");
  write("cifar-10-batches-py/data_batch_1", "pickled");
  const std::string python = (folder_ / "cifar-10-batches-py").string();
  EXPECT_EQ(refusal(), "no CIFAR-10 in the binary version in '" + folder_.string() + "': '" + python +
                           "' holds the Python version, which is pickled; scripts/convert_cifar10.py '" + python +
                           "' makes the binary one beside it");
}

TEST_F(Cifar10Folder, refuses_incomplete_files) {
  write("data_batch_1.bin", record(1, 1) + "abc");
  EXPECT_EQ(refusal(), path("data_batch_1.bin") +
                           " has 3076 bytes, which is 1 records of 3073 and 3 bytes more: the "
                           "copy is incomplete, fetch it again");
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
}  // namespace penstock::test::cifar10_test
