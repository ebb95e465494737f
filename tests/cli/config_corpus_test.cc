// Replays the corpus of the fuzzers.
#include "tests/fuzz/config_input.h"
#include "tests/fuzz/replay.h"

namespace penstock::config_corpus_test {
namespace {

TEST(CliCorpus, config_files) { EXPECT_GT(replay("config", try_config), 10); }

}  // namespace
}  // namespace penstock::config_corpus_test
