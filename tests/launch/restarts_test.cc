#include "penstock/launch/restarts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "tests/checkpoint/small_checkpoint.h"

namespace penstock::restarts_test {
namespace {

using namespace launch;
using Decision = RestartLimit::Decision;

CheckpointPlace at(std::int64_t step, std::int64_t attempt = 1) { return {"run/a step", step, attempt}; }

using Places = std::vector<CheckpointPlace>;

TEST(RestartLimit, restarts_as_often_as_allowed) {
  RestartLimit limit(2, {});
  EXPECT_EQ(limit.after_failure(std::nullopt), Decision::restart);
  EXPECT_EQ(limit.left(), 1);
  EXPECT_EQ(limit.after_failure(std::nullopt), Decision::restart);
  EXPECT_EQ(limit.done(), 2);
  EXPECT_EQ(limit.after_failure(std::nullopt), Decision::used_up);
  EXPECT_EQ(RestartLimit(0, {at(5)}).after_failure(Places{at(6), at(5)}), Decision::used_up);
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
  for (int i = 0; i < 10; ++i) EXPECT_EQ(limit.after_failure(Places{at(++step)}), Decision::restart);
  EXPECT_EQ(limit.after_failure(Places{at(step)}), Decision::restart);
  EXPECT_EQ(limit.after_failure(Places{at(step)}), Decision::restart);
  EXPECT_EQ(limit.after_failure(Places{at(step, 2), at(step)}), Decision::restart) << "of the same step, but later";
  EXPECT_EQ(limit.after_failure(Places{at(step, 2)}), Decision::restart);
  // One that is damaged or removed is no progress.
  EXPECT_EQ(limit.after_failure(Places{at(step, 2)}), Decision::restart);
  EXPECT_EQ(limit.after_failure(Places{}), Decision::no_progress);
}

TEST(RestartLimit, an_older_step_is_progress_behind_a_damaged_checkpoint) {
  // The training skips step 14000, of which a tensor is damaged, and writes others.
  RestartLimit limit(100, {at(14000), at(100)});
  for (const std::int64_t step : {250, 400, 550, 700, 850})
    EXPECT_EQ(limit.after_failure(Places{at(14000), at(step)}), Decision::restart) << step;
}

TEST(RestartLimit, complete_checkpoints) {
  const test::TemporaryFolder folder("restarts");
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

using Arguments = std::vector<std::string>;

TEST(TrainSettings, are_those_that_the_program_prints) {
  const TrainSettings settings = parse_train_settings(
      "# penstock train --config FILE\n"
      "checkpoint = \"run \\\"one\\\"\"\n"
      "# resume =\n"
      "batch-size = 32\n"
      "lr = 1e-2\n"
      "boundary-shape = [16, 1024]\n"
      "shuffle = true\n"
      "max-time = \"1:00:00\"\n");
  EXPECT_EQ(settings.checkpoint, "run \"one\"");
  EXPECT_EQ(settings.folder(), "run \"one\"");
  EXPECT_EQ(settings.resume, "");
  EXPECT_EQ(settings.max_time, "1:00:00");
  EXPECT_EQ(parse_train_settings("").checkpoint, "");
}

TEST(TrainSettings, other_output_is_refused) {
  for (const char* text : {"hello\n", "checkpoint = \"run\n", "checkpoint = \"a\" \"b\"\n"})
    EXPECT_THROW(parse_train_settings(text), Failure) << text;
}

/// What a later attempt of "penstock train" adds.
Arguments added(const TrainSettings& settings, bool has_checkpoint) {
  const Arguments first{"penstock", "train"};
  Arguments later = resuming_arguments(first, settings, has_checkpoint);
  EXPECT_EQ(Arguments(later.begin(), later.begin() + 2), first);
  later.erase(later.begin(), later.begin() + 2);
  return later;
}

TEST(TrainSettings, later_attempts_resume) {
  const Arguments resume{"--resume", "auto"};
  EXPECT_EQ(added({.checkpoint = "run"}, true), resume);
  EXPECT_EQ(added({.checkpoint = "run"}, false), resume) << "or anew, if none is complete";
  EXPECT_EQ(added({}, false), Arguments()) << "no checkpoints";
}

TEST(TrainSettings, a_resumed_training_resumes_by_itself) {
  EXPECT_EQ(added({.checkpoint = "run", .resume = "auto"}, true), Arguments());
  EXPECT_EQ(added({.resume = "run"}, true), Arguments());
}

TEST(TrainSettings, a_start_from_one_checkpoint_is_repeated_until_there_is_a_newer_one) {
  EXPECT_EQ(added({.resume = "run/step-00000100"}, false), Arguments());
  EXPECT_EQ(added({.resume = "run/step-00000100/"}, true), (Arguments{"--resume", "run"}));
}

TEST(TrainSettings, a_start_from_another_folder_is_repeated_until_there_is_a_newer_one) {
  EXPECT_EQ(added({.checkpoint = "own", .resume = "other"}, false), Arguments());
  EXPECT_EQ(added({.checkpoint = "own", .resume = "other"}, true), (Arguments{"--resume", "own"}));
}

TEST(TrainSettings, folder_of_checkpoints) {
  EXPECT_EQ(TrainSettings().folder(), "");
  EXPECT_EQ((TrainSettings{.checkpoint = "run", .resume = "auto"}).folder(), "run");
  EXPECT_EQ((TrainSettings{.resume = "other"}).folder(), "other");
  EXPECT_EQ((TrainSettings{.checkpoint = "own", .resume = "other"}).folder(), "own");
  EXPECT_EQ((TrainSettings{.resume = "other/step-00000100"}).folder(), "other");
  EXPECT_EQ((TrainSettings{.resume = "other/step-00000100/"}).folder(), "other");
  EXPECT_EQ((TrainSettings{.resume = "step-00000100"}).folder(), ".");
}

}  // namespace
}  // namespace penstock::restarts_test
