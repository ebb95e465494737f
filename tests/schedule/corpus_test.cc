// Replays the corpus of the fuzzers.
#include "tests/fuzz/replay.h"
#include "tests/fuzz/schedule_input.h"

namespace penstock::corpus_test {
namespace {

TEST(ScheduleCorpus, schedule_texts) { EXPECT_GT(replay("schedule", try_schedule), 5); }
TEST(ScheduleCorpus, torch_csv_files) { EXPECT_GT(replay("torch_csv", try_torch_csv), 5); }

}  // namespace
}  // namespace penstock::corpus_test
