#include "penstock/launch/restart_limit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "tests/checkpoint/small_checkpoint.h"

namespace penstock::restart_limit_test {
namespace {

using Decision = RestartLimit::Decision;

CheckpointPlace at(std::int64_t step, std::int64_t attempt = 1) { return {"run/a step", step, attempt}; }

using Places = std::vector<CheckpointPlace>;

TEST(RestartLimit, restarts_as_often_as_allowed) {
  RestartLimit limit(2, {});
  EXPECT_EQ(limit.after_failure(), Decision::restart);
  EXPECT_EQ(limit.left(), 1);
  EXPECT_EQ(limit.after_failure(), Decision::restart);
  EXPECT_EQ(limit.done(), 2);
  EXPECT_EQ(limit.after_failure(), Decision::used_up);
  EXPECT_EQ(RestartLimit(0, {at(5)}).after_failure({at(6), at(5)}), Decision::used_up);
}

TEST(RestartLimit, three_restarts_without_a_new_checkpoint_are_the_last) {
  for (const Places& complete : {Places(), Places{at(5)}}) {
    RestartLimit limit(100, complete);
    EXPECT_EQ(limit.after_failure(complete), Decision::restart) << "the first attempt is no restart";
    EXPECT_EQ(limit.after_failure(complete), Decision::restart);
    EXPECT_EQ(limit.after_failure(complete), Decision::restart);
    EXPECT_EQ(limit.after_failure(complete), Decision::no_progress);
    EXPECT_EQ(limit.done(), 3);
  }
}

TEST(RestartLimit, a_new_checkpoint_counts_from_the_beginning) {
  RestartLimit limit(100, {});
  std::int64_t step = 0;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(limit.after_failure({at(++step)}), Decision::restart);
  EXPECT_EQ(limit.after_failure({at(step)}), Decision::restart);
  EXPECT_EQ(limit.after_failure({at(step)}), Decision::restart);
  EXPECT_EQ(limit.after_failure({at(step, 2), at(step)}), Decision::restart) << "of the same step, but later";
  EXPECT_EQ(limit.after_failure({at(step, 2)}), Decision::restart);
  // One that is damaged or removed is no progress.
  EXPECT_EQ(limit.after_failure({at(step, 2)}), Decision::restart);
  EXPECT_EQ(limit.after_failure({}), Decision::no_progress);
}

TEST(RestartLimit, an_older_step_is_progress_behind_a_damaged_checkpoint) {
  // The training skips step 14000, of which a tensor is damaged, and writes others.
  RestartLimit limit(100, {at(14000), at(100)});
  for (const std::int64_t step : {250, 400, 550, 700, 850})
    EXPECT_EQ(limit.after_failure({at(14000), at(step)}), Decision::restart) << step;
}

TEST(RestartLimit, complete_checkpoints) {
  const test::TemporaryFolder folder("restart_limit");
  EXPECT_EQ(complete_checkpoints(""), Places());
  EXPECT_EQ(complete_checkpoints(folder / "none"), Places());
  EXPECT_EQ(complete_checkpoints(folder.string()), Places());
  CheckpointWriter writer({folder.string()});
  test::save_small(writer, 4);
  test::save_small(writer, 9);
  const CheckpointPlace newer{folder / "step-00000009", 9, 1}, older{folder / "step-00000004", 4, 1};
  EXPECT_EQ(complete_checkpoints(folder.string()), (Places{newer, older}));
  std::filesystem::remove(folder / "step-00000009/manifest.json");
  EXPECT_EQ(complete_checkpoints(folder.string()), Places{older});
}

}  // namespace
}  // namespace penstock::restart_limit_test
