// Replays the corpus of the fuzzers, including inputs that they found, in every build.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fuzz/checkpoint_input.h"

namespace penstock::corpus_test {
namespace {

template <class Try>
int replay_checkpoints(const char* folder, Try&& attempt) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NO_THROW(attempt(text)) << entry.path();
    ++files;
  }
  return files;
}

TEST(Corpus, manifests) { EXPECT_GT(replay_checkpoints(FUZZ_CORPUS "/manifest", try_manifest), 3); }
TEST(Corpus, weight_indices) { EXPECT_GT(replay_checkpoints(FUZZ_CORPUS "/weight_index", try_weight_index), 2); }
TEST(Corpus, safetensors_headers) { EXPECT_GT(replay_checkpoints(FUZZ_CORPUS "/safetensors", try_safetensors), 20); }

}  // namespace
}  // namespace penstock::corpus_test
