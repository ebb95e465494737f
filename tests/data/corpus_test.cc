// Replays the corpus of the fuzzers.
#include "tests/fuzz/data_input.h"
#include "tests/fuzz/replay.h"

namespace penstock::corpus_test {
namespace {

TEST(DataCorpus, cifar10_records) { EXPECT_GT(replay("cifar10", try_cifar10), 4); }
TEST(DataCorpus, vocabularies) { EXPECT_GT(replay("vocabulary", try_vocabulary), 5); }

}  // namespace
}  // namespace penstock::corpus_test
