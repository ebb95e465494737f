// Replays the corpus of the fuzzers.
#include "tests/fuzz/kernel_selection_input.h"
#include "tests/fuzz/replay.h"

namespace penstock::corpus_test {
namespace {

TEST(KernelsCorpus, kernel_selections) { EXPECT_GT(replay("kernel_selection", try_kernel_selection), 4); }

}  // namespace
}  // namespace penstock::corpus_test
