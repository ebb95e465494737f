#include "penstock/launch/restart_limit.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/checkpoint/small_checkpoint.h"

namespace penstock::restart_limit_test {
namespace {

using Decision = RestartLimit::Decision;

CheckpointPlace at(std::int64_t step, std::int64_t attempt = 1) { return {"run/a step", step, attempt}; }

TEST(RestartLimit, restarts_as_often_as_allowed) {
  RestartLimit limit(2, std::nullopt);
  EXPECT_EQ(limit.after_failure(), Decision::restart);
  EXPECT_EQ(limit.left(), 1);
  EXPECT_EQ(limit.after_failure(), Decision::restart);
  EXPECT_EQ(limit.done(), 2);
  EXPECT_EQ(limit.after_failure(), Decision::used_up);
  EXPECT_EQ(RestartLimit(0, at(5)).after_failure(at(6)), Decision::used_up);
}

TEST(RestartLimit, three_restarts_without_a_new_checkpoint_are_the_last) {
  for (const auto& newest : {std::optional<CheckpointPlace>(), std::optional(at(5))}) {
    RestartLimit limit(100, newest);
    EXPECT_EQ(limit.after_failure(newest), Decision::restart) << "the first attempt is no restart";
    EXPECT_EQ(limit.after_failure(newest), Decision::restart);
    EXPECT_EQ(limit.after_failure(newest), Decision::restart);
    EXPECT_EQ(limit.after_failure(newest), Decision::no_progress);
    EXPECT_EQ(limit.done(), 3);
  }
}

TEST(RestartLimit, a_new_checkpoint_counts_from_the_beginning) {
  RestartLimit limit(100, std::nullopt);
  std::int64_t step = 0;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(limit.after_failure(at(++step)), Decision::restart);
  EXPECT_EQ(limit.after_failure(at(step)), Decision::restart);
  EXPECT_EQ(limit.after_failure(at(step)), Decision::restart);
  EXPECT_EQ(limit.after_failure(at(step, 2)), Decision::restart) << "of the same step, but later";
  EXPECT_EQ(limit.after_failure(at(step, 2)), Decision::restart);
  // One that is damaged or removed is no progress.
  EXPECT_EQ(limit.after_failure(at(step - 1)), Decision::restart);
  EXPECT_EQ(limit.after_failure(std::nullopt), Decision::no_progress);
}

TEST(RestartLimit, newest_complete_checkpoint) {
  const test::TemporaryFolder folder("restart_limit");
  EXPECT_EQ(newest_complete(""), std::nullopt);
  EXPECT_EQ(newest_complete(folder / "none"), std::nullopt);
  EXPECT_EQ(newest_complete(folder.string()), std::nullopt);
  CheckpointWriter writer({folder.string()});
  test::save_small(writer, 4);
  test::save_small(writer, 9);
  EXPECT_EQ(newest_complete(folder.string()), (CheckpointPlace{folder / "step-00000009", 9, 1}));
  std::filesystem::remove(folder / "step-00000009/manifest.json");
  EXPECT_EQ(newest_complete(folder.string()), (CheckpointPlace{folder / "step-00000004", 4, 1}));
}

}  // namespace
}  // namespace penstock::restart_limit_test
