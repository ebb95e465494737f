// Replays the corpus of the fuzzers, including inputs that they found, in every build.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fuzz/plan_input.h"

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

TEST(Corpus, cost_files) { EXPECT_GT(replay_all(FUZZ_CORPUS "/layer_costs", try_layer_costs), 5); }

TEST(Corpus, plan_files) { EXPECT_GT(replay_all(FUZZ_CORPUS "/plan", try_plan), 4); }

}  // namespace
}  // namespace penstock::corpus_test
