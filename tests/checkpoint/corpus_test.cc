// Replays the corpus of the fuzzers.
#include "tests/fuzz/checkpoint_input.h"
#include "tests/fuzz/replay.h"

namespace penstock::corpus_test {
namespace {

TEST(CheckpointCorpus, manifests) { EXPECT_GT(replay("manifest", try_manifest), 3); }
TEST(CheckpointCorpus, checkpoints) { EXPECT_GT(replay("checkpoint", try_checkpoint), 4); }
TEST(CheckpointCorpus, safetensors_headers) { EXPECT_GT(replay("safetensors", try_safetensors), 20); }

}  // namespace
}  // namespace penstock::corpus_test
