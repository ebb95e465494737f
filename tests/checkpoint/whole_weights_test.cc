#include "penstock/checkpoint/export_weights.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"
#include "tests/support/temporary_folder.h"

namespace penstock::test::whole_weights_test {
namespace {

namespace fs = std::filesystem;

std::string refusal(const std::string& path) {
  return error_text<DataError>([&] { require_whole_weights(path); });
}

std::string export_of(const std::string& folder) {
  return ", and --weights takes one .safetensors file with all weights: write it by penstock checkpoint export " +
         folder + " --output FILE.safetensors";
}

TEST(WholeWeights, are_one_file) {
  for (const char* path : {"w.safetensors", "none", "run/step-00000005/model-00001-of-00001.safetensors",
                           "a-of-b.safetensors", "one-of-00002.safetensors", "x-1-of-00002.safetensors",
                           "model-00001-of-00002.pt", "model-00001-of-2.safetensors", "-of-00002.safetensors"})
    EXPECT_EQ(refusal(path), "[no error]") << path;
}

TEST(WholeWeights, are_no_part_of_a_checkpoint) {
  const std::string shard = "run/step-00000005/model-00001-of-00002.safetensors";
  EXPECT_EQ(refusal(shard), shard + ": is one of 2 files" + export_of("run/step-00000005"));
  const std::string index = "run/step-00000005/model.safetensors.index.json";
  EXPECT_EQ(refusal(index), index + ": is the index of several files" + export_of("run/step-00000005"));
}

TEST(WholeWeights, are_no_folder) {
  const TemporaryFolder folder("whole_weights");
  for (const std::string& path : {folder.string(), folder / "step-00000005"}) {
    fs::create_directories(path);
    EXPECT_EQ(refusal(path), path + ": is a folder" + export_of(path));
  }
}

// Their checkpoint is not known.
TEST(WholeWeights, are_no_part_of_an_export) {
  EXPECT_EQ(refusal("w-00003-of-00012.safetensors"),
            "w-00003-of-00012.safetensors: is one of 12 files" + export_of("CHECKPOINT"));
  EXPECT_EQ(refusal("out/w.safetensors.index.json"),
            "out/w.safetensors.index.json: is the index of several files" + export_of("CHECKPOINT"));
}

}  // namespace
}  // namespace penstock::test::whole_weights_test
