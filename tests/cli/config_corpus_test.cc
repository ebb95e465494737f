// Replays the corpus of the fuzzers.
#include "tests/fuzz/config_input.h"
#include "tests/fuzz/replay.h"

namespace penstock::config_corpus_test {
namespace {

TEST(CliCorpus, config_files) { EXPECT_GT(replay("config", try_config), 10); }

// Each dot makes a table, and toml++ destroys tables recursively.
TEST(CliCorpus, keys_within_keys_take_no_stack) {
  std::string dotted = "a";
  for (int key = 0; key < 500'000; ++key) dotted += ".a";
  for (const std::string& text : {dotted + " = 1", "[" + dotted + "]", "[[" + dotted + "]]",
                                  "name = {" + dotted + " = 1}", "a" + std::string(500'000, '.') + "a = 1"})
    for (const char* stored : {"", "s"}) EXPECT_NO_THROW(try_config(stored + text));
}

}  // namespace
}  // namespace penstock::config_corpus_test
