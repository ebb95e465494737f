// Replays the corpus of the fuzzers.
#include "tests/fuzz/replay.h"
#include "tests/fuzz/trace_input.h"

namespace penstock::corpus_test {
namespace {

TEST(TraceCorpus, traces) { EXPECT_GT(replay("trace", try_trace), 2); }

}  // namespace
}  // namespace penstock::corpus_test
