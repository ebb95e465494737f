#include "penstock/plan/plan_file.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "penstock/base/error.h"
#include "penstock/plan/planner.h"
#include "tests/base/error_text.h"
#include "tests/plan/small_costs.h"

namespace penstock::tuning_record_test {
namespace {

TuningRecord record_of(const LayerCosts& costs) {
  TuningRecord record;
  record.key = "penstock 1\nnetwork a \"quoted\" \\ line\n";
  record.measured_at = "2026-11-23 02:15:50 UTC";
  record.micro_batches = 4;
  record.partition = "layer4";
  record.kernels = "tuned\nlinear 4 4 library\n";
  record.steps = {{"'1f1b'", 1.0 / 3}, {"'gpipe'", 2}};
  record.plan = make_plan(costs).plan;
  record.costs = costs;
  return record;
}

TEST(TuningRecord, round_trips) {
  EXPECT_TRUE(rc::check("read(write(x)) == x", [] {
    const TuningRecord record = record_of(any_costs(6));
    const TuningRecord read = read_tuning_record(write_tuning_record(record));
    RC_ASSERT(read == record);
    RC_ASSERT(write_tuning_record(read) == write_tuning_record(record));
  }));
  TuningRecord record = record_of(even_layers());
  record.plan.reset();
  record.costs.reset();
  record.kernels.clear();
  record.steps.clear();
  EXPECT_EQ(read_tuning_record(write_tuning_record(record)), record);
}

TEST(TuningRecord, anything_else_is_refused) {
  const std::string text = write_tuning_record(record_of(even_layers()));
  const auto complaint_with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return test::error_text<DataError>([&] { read_tuning_record(changed); });
  };
  EXPECT_TRUE(test::says(complaint_with("\"penstock_tuning\": 1", "\"penstock_tuning\": 2"), "penstock_tuning"));
  EXPECT_TRUE(test::says(complaint_with("\"partition\"", "\"cut\""), "'cut'", "not known"));
  EXPECT_TRUE(test::says(complaint_with("\"ms\": 2", "\"ms\": -2"), "steps[1].ms"));
  EXPECT_TRUE(test::says(complaint_with("\"forward\"", "\"foreward\""), "the cost file's layers[0]"));
  // Half a file, as a full disk leaves it.
  EXPECT_THROW(read_tuning_record(text.substr(0, text.size() / 2)), DataError);
  EXPECT_THROW(read_tuning_record(""), DataError);
  TuningRecord record = record_of(even_layers());
  record.costs.reset();
  EXPECT_TRUE(test::says(test::error_text<DataError>([&] { write_tuning_record(record); }), "not both"));
}

}  // namespace
}  // namespace penstock::tuning_record_test
