#include "penstock/checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <filesystem>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"
#include "tests/support/temporary_folder.h"

namespace penstock::test::safetensors_test {
namespace {

namespace fs = std::filesystem;

class Safetensors : public testing::Test {
 protected:
  std::string bytes() const { return bytes_of_file(path_); }
  void put(const std::string& bytes) const { write_bytes(path_, bytes); }
  void put(const std::string& header, const std::string& data) const {
    std::string length(8, '\0');
    const std::uint64_t size = header.size();
    std::memcpy(length.data(), &size, sizeof(size));
    put(length + header + data);
  }
  std::string refusal() const {
    return error_text<DataError>([&] { read_safetensors(path_); });
  }

  const TemporaryFolder files_{"safetensors"};
  const fs::path folder_ = files_.string();
  const std::string path_ = files_ / "weights.safetensors";
};

TEST_F(Safetensors, reads_back_what_was_written) {
  torch::manual_seed(1);
  WeightFile file;
  for (const auto type : {torch::kFloat64, torch::kFloat32, torch::kFloat16, torch::kBFloat16})
    file.tensors.insert(torch::toString(type), torch::randn({2, 3}).to(type));
  for (const auto type : {torch::kInt64, torch::kInt32, torch::kInt16, torch::kInt8, torch::kUInt8, torch::kBool})
    file.tensors.insert(torch::toString(type), torch::randint(0, 2, {5}).to(type));
  file.tensors.insert("a.number", torch::tensor(7.5));
  file.tensors.insert("none of them", torch::empty({0, 4}));
  file.tensors.insert("strided \"\xc3\xa4\"", torch::arange(6).view({2, 3}).t());
  file.metadata = {{"model", "gpt"}, {"vocabulary", "\n !\"'"}};
  write_safetensors(path_, file);
  const WeightFile read = read_safetensors(path_);
  EXPECT_EQ(read.metadata, file.metadata);
  ASSERT_EQ(read.tensors.size(), file.tensors.size());
  for (const auto& [name, tensor] : file.tensors.pairs()) {
    EXPECT_EQ(read.tensors[name].dtype(), tensor.dtype()) << name;
    EXPECT_TRUE(torch::equal(read.tensors[name], tensor)) << name;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1) << "something is left over";
}

TEST_F(Safetensors, has_the_bytes_of_the_format) {
  write_safetensors(path_, {{{"w", torch::tensor({1.0F, 2.0F})}}});
  const std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::string all = bytes();
  EXPECT_EQ(static_cast<unsigned char>(all[0]) % 8, 0) << "the data is not aligned";
  EXPECT_EQ(all.substr(8, header.size()), header);
  EXPECT_EQ(all.substr(all.size() - 8), std::string("\0\0\x80\x3f\0\0\0\x40", 8));
}

TEST_F(Safetensors, refuses_invalid_files) {
  const std::string entry = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  put(entry, "12345678");
  EXPECT_EQ(refusal(), "[no error]");
  // safetensors_header_test.cc has the other invalid headers.
  put(entry, "1234567");
  EXPECT_TRUE(says(refusal(), "promises 8 bytes of data and holds 7", path_));
  put("[]", "");
  EXPECT_TRUE(says(refusal(), "not a JSON object", path_));
  put(R"({"w":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}})", "12345678");
  EXPECT_TRUE(says(refusal(), "of dtype C64", path_));
  put(R"({"w":{"dtype":"BOOL","shape":[8],"data_offsets":[0,8]}})", "12345678");
  EXPECT_TRUE(says(refusal(), "neither 0 nor 1", path_));
  put("123");
  EXPECT_TRUE(says(refusal(), "it has 3 bytes"));
  put(std::string(8, '\xff') + "{}");
  EXPECT_TRUE(says(refusal(), "claims a header of 18446744073709551615"));
  fs::remove(path_);
  EXPECT_TRUE(says(refusal(), "cannot open"));
}

TEST_F(Safetensors, keeps_the_old_file_if_writing_fails) {
  put("as it was");
  EXPECT_TRUE(says(error_text<ConfigError>([&] {
                     write_safetensors(path_, {{{"w", torch::Tensor()}}});
                   }),
                   "'w' has no value"));
  EXPECT_TRUE(says(error_text<ConfigError>([&] {
                     write_safetensors(path_, {{{"w", torch::zeros({1}, torch::kComplexFloat)}}});
                   }),
                   "'w' is of ComplexFloat"));
  EXPECT_TRUE(says(error_text<ConfigError>([&] {
                     write_safetensors(path_, {{{"w\xff", torch::zeros({1})}}, {}});
                   }),
                   "tensor 'w\\xff'", "not UTF-8"));
  EXPECT_TRUE(says(error_text<ConfigError>([&] {
                     write_safetensors(path_, {StateDict(), {{"note", "\xfe"}}});
                   }),
                   "'note'", "'\\xfe'", "not UTF-8"));
  EXPECT_EQ(bytes(), "as it was");
  EXPECT_TRUE(
      says(error_text<ConfigError>([&] { write_safetensors((folder_ / "no" / "w").string(), {}); }), "no such folder"));
}

}  // namespace
}  // namespace penstock::test::safetensors_test
