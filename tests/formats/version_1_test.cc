// Every file of version 1 is read; the same file of a later version is refused, and the message names both.
#include <gtest/gtest.h>

#include <string>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/checkpoint/checkpoint_reader.h"
#include "penstock/plan/plan.h"
#include "penstock/trace/trace.h"
#include "tests/base/error_text.h"

namespace penstock::test::version_1_test {
namespace {

std::string file(const std::string& name) { return read_text(std::string(TESTS_FOLDER "/formats/version_1/") + name); }

/// `text` with a version of 7 in place of 1 after `key`.
std::string later(std::string text, const std::string& key) {
  const std::size_t at = text.find(key);
  EXPECT_NE(at, std::string::npos) << key;
  const std::size_t digit = text.find('1', at + key.size());
  text[digit] = '7';
  return text;
}

/// The message about the file `name` of version 7.
template <class Read>
std::string refusal(const std::string& name, const std::string& key, Read&& read) {
  return error_text<DataError>([&] { read(later(file(name), key)); });
}

TEST(Version1, schedules) {
  for (const char* name : {"lowered.sched", "overlap.sched", "skip.sched"}) {
    const Schedule schedule = read_schedule(file(name));
    EXPECT_GT(schedule.instruction_count(), 4U) << name;
    EXPECT_EQ(write_schedule(schedule), file(name)) << name;
    EXPECT_TRUE(says(refusal(name, "penstock schedule ", read_schedule), "version 7", "version 1")) << name;
  }
}

TEST(Version1, costs) {
  const LayerCosts layers = read_layer_costs(file("layer_costs.json"));
  EXPECT_EQ(read_layer_costs(write_layer_costs(layers)), layers);
  EXPECT_FALSE(layers.layers.empty());
  EXPECT_TRUE(says(refusal("layer_costs.json", "penstock_layer_costs\"", read_layer_costs), "is 7", "1 to 1"));
  const StageCosts stages = read_stage_costs(file("stage_costs.json"));
  EXPECT_EQ(stages.forward, (std::vector<double>{1, 2}));
  EXPECT_EQ(stages.message, 0.5);
  EXPECT_TRUE(says(refusal("stage_costs.json", "penstock_costs\"", read_stage_costs), "is 7", "1 to 1"));
}

TEST(Version1, plans_and_tuning_files) {
  const Plan plan = read_plan(file("plan.json"));
  EXPECT_EQ(read_plan(write_plan(plan)), plan);
  EXPECT_TRUE(says(refusal("plan.json", "penstock_plan\"", read_plan), "is 7", "1 to 1"));
  const TuningRecord record = read_tuning_record(file("tuning.json"));
  EXPECT_TRUE(record.plan && record.costs);
  EXPECT_EQ(read_tuning_record(write_tuning_record(record)), record);
  EXPECT_TRUE(says(refusal("tuning.json", "penstock_tuning\"", read_tuning_record), "is 7", "1 to 1"));
}

TEST(Version1, traces) {
  const Trace trace = read_trace(file("trace.json"));
  EXPECT_EQ(write_trace(trace), file("trace.json"));
  EXPECT_EQ(trace.ranks.size(), 2U);
  EXPECT_TRUE(says(refusal("trace.json", "format\"", read_trace), "format 7", "format 1"));
}

TEST(Version1, checkpoints) {
  const NewestCheckpoint newest =
      newest_checkpoint(TESTS_FOLDER "/checkpoint/goldens/version_1", CheckpointCheck::checksums);
  ASSERT_TRUE(newest.checkpoint);
  EXPECT_EQ(newest.checkpoint->manifest().step, 5);
  EXPECT_TRUE(newest.damaged.empty());
  const std::string manifest = read_text(newest.checkpoint->directory() + "/" + manifest_name);
  const std::string body = later(manifest.substr(manifest.find('\n') + 1), "\"version\"");
  EXPECT_TRUE(
      says(error_text<DataError>([&] { read_manifest(sealed(body), "the manifest"); }), "version 7", "version 1"));
}

}  // namespace
}  // namespace penstock::test::version_1_test
