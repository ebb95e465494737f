// Replays the corpora of the fuzzers, the inputs that they found included.
#include "tests/fuzz/checkpoint_input.h"
#include "tests/fuzz/config_input.h"
#include "tests/fuzz/data_input.h"
#include "tests/fuzz/planning_input.h"
#include "tests/fuzz/replay.h"
#include "tests/fuzz/text_input.h"

namespace penstock::corpus_test {
namespace {

TEST(Corpus, schedule_texts) { EXPECT_GT(replay("schedule", try_schedule), 5); }
TEST(Corpus, torch_csv_files) { EXPECT_GT(replay("torch_csv", try_torch_csv), 5); }
TEST(Corpus, traces) { EXPECT_GT(replay("trace", try_trace), 2); }
TEST(Corpus, layer_cost_files) { EXPECT_GT(replay("layer_costs", try_layer_costs), 5); }
TEST(Corpus, stage_cost_files) { EXPECT_GT(replay("stage_costs", try_stage_costs), 4); }
TEST(Corpus, cluster_files) { EXPECT_GT(replay("cluster", try_cluster), 3); }
TEST(Corpus, plan_files) { EXPECT_GT(replay("plan", try_plan), 4); }
TEST(Corpus, tuning_files) { EXPECT_GT(replay("tuning_record", try_tuning_record), 4); }
TEST(Corpus, manifests) { EXPECT_GT(replay("manifest", try_manifest), 3); }
TEST(Corpus, checkpoints) { EXPECT_GT(replay("checkpoint", try_checkpoint), 4); }
TEST(Corpus, safetensors_headers) { EXPECT_GT(replay("safetensors", try_safetensors), 20); }
TEST(Corpus, kernel_selections) { EXPECT_GT(replay("kernel_selection", try_kernel_selection), 4); }
TEST(Corpus, cifar10_records) { EXPECT_GT(replay("cifar10", try_cifar10), 4); }
TEST(Corpus, vocabularies) { EXPECT_GT(replay("vocabulary", try_vocabulary), 5); }
TEST(Corpus, tokenizers) { EXPECT_GT(replay("tokenizer", try_tokenizer), 5); }
TEST(Corpus, token_files) { EXPECT_GT(replay("token_file", try_token_file), 5); }
TEST(Corpus, config_files) { EXPECT_GT(replay("config", try_config), 10); }

// Each dot makes a table, and toml++ destroys tables recursively.
TEST(Corpus, keys_within_keys_take_no_stack) {
  for (const int dots : {4'999, 500'000}) {
    std::string dotted = "a";
    for (int dot = 0; dot < dots; ++dot) dotted += ".a";
    for (const std::string& text :
         {dotted + " = 1", "[" + dotted + "]", "[[" + dotted + "]]", "name = {" + dotted + " = 1}",
          "a" + std::string(static_cast<std::size_t>(dots), '.') + "a = 1"})
      for (const char* stored : {"", "s"}) EXPECT_NO_THROW(try_config(stored + text));
  }
}

}  // namespace
}  // namespace penstock::corpus_test
