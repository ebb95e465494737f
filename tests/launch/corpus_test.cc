// Replays the corpus of the fuzzers.
#include "tests/fuzz/hosts_input.h"
#include "tests/fuzz/replay.h"

namespace penstock::corpus_test {
namespace {

TEST(LaunchCorpus, lists_of_hosts) { EXPECT_GT(replay("hosts", try_hosts), 4); }

}  // namespace
}  // namespace penstock::corpus_test
