// Replays the corpus of the fuzzers, including inputs that they found, in every build.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fuzz/schedule_input.h"

namespace penstock::corpus_test {
namespace {

template <class Try>
int replay_all(const char* folder, Try&& attempt) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NO_THROW(attempt(text)) << entry.path();
    ++files;
  }
  return files;
}

TEST(Corpus, schedule_texts) { EXPECT_GT(replay_all(FUZZ_CORPUS "/schedule", try_schedule_text), 5); }

TEST(Corpus, torch_csv_files) { EXPECT_GT(replay_all(FUZZ_CORPUS "/torch_csv", try_torch_csv), 5); }

}  // namespace
}  // namespace penstock::corpus_test
