// Exports that fail: they leave no file, and replace none. checkpoint_writer_test.cc has those that succeed.
#include "penstock/checkpoint/export_weights.h"

#include <gtest/gtest.h>

#include "tests/base/error_text.h"
#include "tests/checkpoint/small_checkpoint.h"

namespace penstock::test::export_weights_test {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

constexpr std::uint64_t most_bytes_of_3_shards = 64;

class FailedExport : public testing::Test {
 protected:
  FailedExport() : folder_("failed_export") {
    CheckpointWriter writer({folder_ / "run"});
    directory_ = save_small(writer, 5).directory;
    fs::create_directory(folder_ / "out");
  }
  /// Damages the tensor that is exported last.
  void damage_last_tensor() const {
    const std::string path = directory_ + "/model-00002-of-00002.safetensors";
    std::string bytes = bytes_of_file(path);
    const auto stored = Checkpoint(directory_).find(FileKind::model, "layer1.weight");
    bytes[static_cast<std::size_t>(stored->offset)] ^= 1;
    write_bytes(path, bytes);
  }
  template <class Error>
  std::string refusal(const std::string& path, std::optional<std::uint64_t> most_bytes = {}) const {
    return error_text<Error>([&] { export_weights(Checkpoint(directory_), path, most_bytes); });
  }

  TemporaryFolder folder_;
  std::string directory_;
};

TEST_F(FailedExport, of_a_damaged_checkpoint_leaves_nothing) {
  damage_last_tensor();
  for (const std::optional<std::uint64_t> most_bytes : {std::optional<std::uint64_t>(), {most_bytes_of_3_shards}})
    EXPECT_TRUE(says(refusal<DataError>(folder_ / "out/all.safetensors", most_bytes), "'layer1.weight' is damaged"));
  EXPECT_EQ(names_in(folder_ / "out"), Names());
}

TEST_F(FailedExport, replaces_no_file) {
  const Names paths = export_weights(Checkpoint(directory_), folder_ / "out/all.safetensors", most_bytes_of_3_shards);
  ASSERT_EQ(paths.size(), 4U);
  for (const std::string& path : paths) write_bytes(path, "of before");
  damage_last_tensor();
  refusal<DataError>(folder_ / "out/all.safetensors", most_bytes_of_3_shards);
  EXPECT_EQ(names_in(folder_ / "out").size(), paths.size());
  for (const std::string& path : paths) EXPECT_EQ(bytes_of_file(path), "of before") << path;
}

TEST_F(FailedExport, at_the_last_file_leaves_no_other) {
  fs::create_directory(folder_ / "out/all.safetensors.index.json");
  EXPECT_TRUE(says(refusal<ConfigError>(folder_ / "out/all.safetensors", most_bytes_of_3_shards),
                   "all.safetensors.index.json: is a folder"));
  EXPECT_EQ(names_in(folder_ / "out"), Names{"all.safetensors.index.json"});
}

TEST_F(FailedExport, into_a_checkpoint_leaves_it_whole) {
  const Names before = names_in(directory_);
  fs::create_directory_symlink(directory_, folder_ / "link");
  fs::create_symlink(directory_ + "/model-00001-of-00002.safetensors", folder_ / "out/file.safetensors");
  fs::create_symlink(directory_ + "/train.toml", folder_ / "out/all-00002-of-00003.safetensors");
  for (const std::string& path : {directory_ + "/model-00001-of-00002.safetensors", directory_ + "/new.safetensors",
                                  folder_ / "link/new.safetensors", folder_ / "out/file.safetensors"})
    EXPECT_EQ(refusal<ConfigError>(path), path +
                                              ": lies in the directory of a checkpoint, whose files must stay as "
                                              "they are: name a file in another folder");
  EXPECT_TRUE(says(refusal<ConfigError>(folder_ / "out/all.safetensors", most_bytes_of_3_shards),
                   "out/all-00002-of-00003.safetensors: lies in the directory of a checkpoint"));
  EXPECT_EQ(names_in(directory_), before);
  EXPECT_EQ(Checkpoint(directory_).damage(), Names());
  // The name alone makes no checkpoint: a script may keep an export of each in a folder of its name.
  fs::create_directory(folder_ / "out/step-00000005");
  EXPECT_EQ(refusal<ConfigError>(folder_ / "out/step-00000005/model.safetensors"), "[no error]");
}

}  // namespace
}  // namespace penstock::test::export_weights_test
