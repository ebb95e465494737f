// When a Trainer writes checkpoints, and what it continues from them: other batch sizes, the first step, hooks that
// stop the training, gradients that await their update, another folder.
#include <limits>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/checkpoint/checkpoint_reader.h"
#include "penstock/penstock.h"
#include "tests/support/expect_same.h"
#include "tests/support/pipeline_of.h"
#include "tests/support/temporary_folder.h"

namespace penstock::test::checkpoint_times_test {
namespace {

struct Network : Cell {
  Layer first = add("first", [] { return torch::nn::Linear(6, 8); });
  Layer last = add("last", [] { return torch::nn::Linear(8, 3); });
  Value forward(Value x) override { return last(relu(first(x))); }
};

/// Records each reported step with its learning rate, and stops after one of them.
class Notes : public Hook {
 public:
  void attached(Trainer& trainer) override { trainer_ = &trainer; }
  void after_step(const StepReport& report) override {
    lines.push_back(say(report.epoch, ":", report.step, report.learning_rate ? say(" ", *report.learning_rate) : ""));
    if (lines.size() == stop_after) trainer_->stop("enough");
  }
  std::vector<std::string> lines;
  std::size_t stop_after = std::numeric_limits<std::size_t>::max();

 private:
  Trainer* trainer_ = nullptr;
};

struct Run {
  std::string folder;
  TrainerOptions options = {.epochs = 2};
  std::int64_t batch_size = 10;
  std::int64_t every = 1000;  // steps
  std::string resume = {};
  std::size_t stop_after = std::numeric_limits<std::size_t>::max();
  int updates_every = 1;
};

struct Done {
  std::vector<std::string> lines;
  StateDict state;
  std::optional<StopRequest> interrupted;
  std::optional<std::string> stopped;
};

/// Trains on 60 samples.
Done run(const Run& what) {
  PipelineOf<Network> pipeline(
      {.stages = 2}, {.micro_batches = 2, .update_every = what.updates_every, .partition = "uniform", .seed = 4},
      sgd({.learning_rate = 0.1, .momentum = 0.9}));
  Trainer trainer(pipeline, what.options);
  Notes& notes = trainer.add_hook(std::make_unique<Notes>());
  notes.stop_after = what.stop_after;
  trainer.add_hook(std::make_unique<CheckpointHook>(
      CheckpointOptions{.folder = what.folder, .keep = 100, .every = {.seconds = {}, .steps = what.every}}));
  if (!what.resume.empty()) {
    EXPECT_TRUE(trainer.resume(what.resume));
  }
  torch::manual_seed(5);
  const torch::Tensor inputs = torch::randn({60, 6}), targets = torch::randint(0, 3, {60}, torch::kInt64);
  Loader train(tensor_source(inputs, targets), {.batch_size = what.batch_size, .seed = 5});
  trainer.fit(train);
  return {notes.lines, pipeline.state_dict(), trainer.interrupted(), trainer.stopped()};
}

/// Asks for the end before the step with `steps` others before it in this run.
std::function<std::optional<StopRequest>()> ends_after(std::int64_t steps) {
  return [asked = std::int64_t{0}, steps]() mutable {
    return asked++ < steps ? std::nullopt : std::optional<StopRequest>(StopRequest{"enough"});
  };
}

/// The steps of all checkpoints, ascending.
std::vector<std::int64_t> steps_in(const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const CheckpointPlace& place : list_checkpoints(folder)) steps.insert(steps.begin(), place.step);
  return steps;
}

using Lines = std::vector<std::string>;

class CheckpointTimes : public testing::Test {
 protected:
  const TemporaryFolder temporary_{"checkpoint_times"};
  const std::string folder_ = temporary_ / "run";
};

TEST_F(CheckpointTimes, an_epoch_with_another_batch_size_has_all_its_steps) {
  // A rate of 1 that falls by a third with each epoch.
  const TrainerOptions options{.epochs = 3, .learning_rate = LearningRatePlan{.schedule = "linear", .rate = 1}};
  TrainerOptions first = options;
  first.stop_when = ends_after(6);
  for (const std::int64_t other : {15, 20, 30}) {
    const TemporaryFolder folder("checkpoint_times_batch");
    EXPECT_EQ(run({.folder = folder.string(), .options = first}).lines.size(), 6U);
    Lines expected;
    for (int epoch = 1; epoch < 3; ++epoch)
      for (int step = 0; step < 60 / other; ++step)
        expected.push_back(say(epoch, ":", step, " ", 1.0 * (1 - epoch / 3.0)));
    EXPECT_EQ(
        run({.folder = folder.string(), .options = options, .batch_size = other, .resume = folder.string()}).lines,
        expected);
  }
}

TEST_F(CheckpointTimes, any_number_of_epochs_is_limited_by_steps) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(run({.folder = folder_, .options = {.epochs = most, .max_steps = 7}}).lines.back(), "1:0");
  EXPECT_EQ(run({.folder = folder_, .options = {.epochs = most, .max_steps = 9}, .resume = folder_}).lines,
            (Lines{"1:1", "1:2"}));
}

TEST_F(CheckpointTimes, a_training_that_ends_before_its_first_step_can_be_resumed) {
  const Done undisturbed = run({.folder = temporary_ / "undisturbed"});
  EXPECT_TRUE(run({.folder = folder_, .options = {.epochs = 2, .stop_when = ends_after(0)}}).interrupted);
  EXPECT_EQ(steps_in(folder_), std::vector<std::int64_t>{0});
  expect_same(run({.folder = folder_, .resume = folder_}).state, undisturbed.state);
  EXPECT_EQ(steps_in(folder_), (std::vector<std::int64_t>{0, 12})) << "the first one is not written again";
}

TEST_F(CheckpointTimes, a_hook_that_stops_leaves_no_checkpoint_that_would_go_on) {
  // A step is submitted before the report of the one before it.
  const Lines expected{"0:0", "0:1", "0:2", "0:3"};
  EXPECT_EQ(run({.folder = temporary_ / "rare", .stop_after = 3}).lines, expected);
  EXPECT_EQ(run({.folder = folder_, .every = 1, .stop_after = 3}).lines, expected);
  EXPECT_EQ(steps_in(folder_), (std::vector<std::int64_t>{1, 2, 4}));
  for (const CheckpointPlace& place : list_checkpoints(folder_)) {
    if (place.step < 4) continue;
    EXPECT_EQ(run({.folder = temporary_ / "other", .resume = place.path}).lines, Lines());
  }
}

TEST_F(CheckpointTimes, a_hook_that_stops_precedes_a_request_to_end) {
  const Done done = run({.folder = folder_, .options = {.epochs = 2, .stop_when = ends_after(3)}, .stop_after = 3});
  EXPECT_EQ(done.lines.size(), 4U);
  EXPECT_TRUE(done.stopped);
  EXPECT_FALSE(done.interrupted);
}

TEST_F(CheckpointTimes, gradients_that_are_accumulated_are_not_lost) {
  const Done undisturbed = run({.folder = temporary_ / "undisturbed", .every = 4, .updates_every = 3});
  EXPECT_EQ(steps_in(temporary_ / "undisturbed"), (std::vector<std::int64_t>{6, 9, 12}));
  const Done first = run({.folder = folder_, .options = {.epochs = 2, .stop_when = ends_after(4)}, .updates_every = 3});
  EXPECT_TRUE(first.interrupted);
  EXPECT_EQ(first.lines.size(), 6U) << "the next update comes after six steps";
  EXPECT_EQ(steps_in(folder_), std::vector<std::int64_t>{6});
  expect_same(run({.folder = folder_, .resume = folder_, .updates_every = 3}).state, undisturbed.state);
}

TEST_F(CheckpointTimes, gradients_that_remain_at_the_end_are_in_no_checkpoint) {
  EXPECT_EQ(
      run({.folder = folder_, .options = {.epochs = 2, .max_steps = 11}, .every = 2, .updates_every = 3}).lines.size(),
      11U);
  EXPECT_EQ(steps_in(folder_), (std::vector<std::int64_t>{3, 6, 9}));
}

TEST_F(CheckpointTimes, a_training_may_go_on_in_another_folder) {
  const Done undisturbed = run({.folder = temporary_ / "undisturbed"});
  run({.folder = folder_, .options = {.epochs = 2, .max_steps = 5}});
  expect_same(run({.folder = temporary_ / "other", .resume = folder_}).state, undisturbed.state);
  EXPECT_EQ(steps_in(folder_), std::vector<std::int64_t>{5});
  EXPECT_EQ(steps_in(temporary_ / "other"), std::vector<std::int64_t>{12});
  // Where nothing is left to train, the other folder gets the checkpoint nevertheless.
  run({.folder = temporary_ / "third", .resume = temporary_ / "other"});
  EXPECT_EQ(steps_in(temporary_ / "third"), std::vector<std::int64_t>{12});
}

}  // namespace
}  // namespace penstock::test::checkpoint_times_test
