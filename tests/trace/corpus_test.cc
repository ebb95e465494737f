// Replays the corpus of the fuzzer, including inputs that it found, in every build.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/fuzz/trace_input.h"
#include "tests/trace/golden.h"

namespace penstock::corpus_test {
namespace {

TEST(Corpus, traces) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(FUZZ_CORPUS "/trace")) {
    EXPECT_NO_THROW(try_trace(content(entry.path()))) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 3);
}

}  // namespace
}  // namespace penstock::corpus_test
