#include "penstock/launch/train_settings.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"

namespace penstock::train_settings_test {
namespace {

using Arguments = std::vector<std::string>;

TEST(TrainSettings, are_those_that_the_program_prints) {
  const TrainSettings settings = parse_train_settings(
      "# penstock train --config FILE\n"
      "checkpoint = \"run \\\"one\\\"\"\n"
      "# resume =\n"
      "batch-size = 32\n"
      "lr = 1e-2\n"
      "schedule = \"1f1b\"\n"
      "boundary-shape = [16, 1024]\n"
      "partition = \"uniform\"\n"
      "shuffle = true\n"
      "replicas = 2\n");
  EXPECT_EQ(settings.checkpoint, "run \"one\"");
  EXPECT_EQ(settings.folder(), "run \"one\"");
  EXPECT_EQ(settings.resume, "");
  EXPECT_EQ(settings.schedule, "1f1b");
  EXPECT_EQ(settings.partition, "uniform");
  EXPECT_EQ(settings.replicas, 2);
  EXPECT_EQ(parse_train_settings("max-time = \"1:00:00\"\n").max_time, "1:00:00");
}

TEST(TrainSettings, without_replicas_there_is_one) {
  EXPECT_EQ(parse_train_settings("").replicas, 1);
  EXPECT_EQ(parse_train_settings("replicas = 0\n").replicas, 1);
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
}  // namespace penstock::train_settings_test
