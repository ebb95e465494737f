// Replays the corpus of the fuzzers.
#include "tests/fuzz/plan_input.h"
#include "tests/fuzz/replay.h"

namespace penstock::corpus_test {
namespace {

TEST(PlanCorpus, layer_cost_files) { EXPECT_GT(replay("layer_costs", try_layer_costs), 5); }
TEST(PlanCorpus, stage_cost_files) { EXPECT_GT(replay("stage_costs", try_stage_costs), 4); }
TEST(PlanCorpus, plan_files) { EXPECT_GT(replay("plan", try_plan), 4); }
TEST(PlanCorpus, tuning_files) { EXPECT_GT(replay("tuning_record", try_tuning_record), 4); }

}  // namespace
}  // namespace penstock::corpus_test
