// Steps whose loss is infinite or not a number: training stops before them, leaves them out, or goes on.
#include "penstock/train/skipped_steps.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/model/dropout.h"
#include "penstock/penstock.h"
#include "penstock/train/trainer.h"
#include "tests/base/error_text.h"
#include "tests/support/expect_same.h"
#include "tests/support/temporary_folder.h"

namespace penstock::test::skipped_steps_test {
namespace {

struct Network : Cell {
  Layer a = add("a", [] { return torch::nn::Linear(6, 8); });
  Layer norm = add("norm", [] { return torch::nn::BatchNorm1d(8); });
  Layer drop = add("drop", [] { return Dropout(0.25); });
  Layer b = add("b", [] { return torch::nn::Linear(8, 3); });
  Value forward(Value x) override { return b(drop(relu(norm(a(x))))); }
};

/// Twelve batches of ten samples, of which those in `spoiled` have a sample with a NaN.
Loader batches(const std::set<int>& spoiled) {
  torch::manual_seed(5);
  torch::Tensor inputs = torch::randn({120, 6});
  const torch::Tensor targets = torch::randint(0, 3, {120}, torch::kInt64);
  for (const int batch : spoiled) inputs[10 * batch + 9][2] = std::nan("");
  return Loader(tensor_source(inputs, targets), {.batch_size = 10, .shuffle = false});
}

struct Job {
  explicit Job(const WorldOptions& ranks = {.stages = 2}, const Loss& loss = cross_entropy, int update_every = 1)
      : world(ranks),
        pipeline(world, network, loss,
                 {.micro_batches = 2, .update_every = update_every, .partition = "uniform", .seed = 4}) {
    pipeline.optimize_with([](auto parameters) { return torch::optim::Adam(parameters, 0.01); });
  }
  World world;
  Network network;
  Pipeline pipeline;
};

class Notes : public Hook {
 public:
  explicit Notes(std::vector<std::string>& lines) : lines_(lines) {}
  void after_step(const StepReport& r) override {
    EXPECT_TRUE(std::isfinite(r.loss));
    lines_.push_back(say(r.epoch, ":", r.step));
  }
  void after_skipped_step(const SkippedStep& r) override {
    lines_.push_back(say(r.epoch, ":", r.step, " left out ", r.in_a_row, " ", r.count, " ", r.samples));
    EXPECT_NE(r.reason.find("input 0 of the batch is not finite"), std::string::npos) << r.reason;
  }
  void after_epoch(const EpochReport& r) override {
    lines_.push_back(say("epoch of ", r.steps, " and ", r.skipped, ", ", r.samples, " samples"));
    EXPECT_TRUE(std::isfinite(r.loss));
  }

 private:
  std::vector<std::string>& lines_;
};

/// The state after a loop over the batches without those in `skipped`, up to batch `end`.
StateDict plain_loop(const std::set<int>& skipped, int end = 12, const Loss& loss = cross_entropy) {
  Job job({.stages = 2}, loss);
  int number = 0;
  for (auto& [inputs, targets] : batches({})) {
    if (number == end) break;
    if (skipped.contains(number++))
      job.pipeline.skip_step();
    else
      job.pipeline.train_step(inputs, targets).wait();
  }
  return job.pipeline.state_dict();
}

TEST(SkippedSteps, are_as_if_the_data_did_not_contain_their_batches) {
  for (const bool look_ahead : {true, false})
    for (const std::set<int>& spoiled : {std::set<int>{4}, {0}, {11}, {3, 4, 8}}) {
      SCOPED_TRACE(say(look_ahead, " ", *spoiled.begin()));
      Job job;
      std::vector<std::string> lines;
      Trainer trainer(job.pipeline, {.on_nan = OnNan::skip, .look_ahead = look_ahead});
      trainer.add_hook(std::make_unique<Notes>(lines));
      Loader train = batches(spoiled);
      trainer.fit(train);
      job.world.finish();
      expect_same(job.pipeline.state_dict(), plain_loop(spoiled));
      if (spoiled.size() < 3) continue;
      EXPECT_EQ(lines, (std::vector<std::string>{"0:0", "0:1", "0:2", "0:3 left out 1 1 10", "0:4 left out 2 2 10",
                                                 "0:5", "0:6", "0:7", "0:8 left out 1 3 10", "0:9", "0:10", "0:11",
                                                 "epoch of 9 and 3, 90 samples"}));
    }
}

TEST(SkippedSteps, are_ten_in_a_row_at_most) {
  const std::set<int> ten{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  Job job;
  Trainer trainer(job.pipeline, {.epochs = 2, .on_nan = OnNan::skip});
  Loader train = batches(ten);
  trainer.fit(train);

  std::set<int> eleven = ten;
  eleven.insert(0);
  for (const bool look_ahead : {true, false}) {
    Job other;
    Trainer stopped(other.pipeline, {.on_nan = OnNan::skip, .look_ahead = look_ahead});
    Loader bad = batches(eleven);
    const StateDict before = other.pipeline.state_dict();
    const std::string text = error_text<InvalidLoss>([&] { stopped.fit(bad); });
    EXPECT_TRUE(says(text, "epoch 0, step 10: the loss of training step 10 is nan",
                     "10 steps in a row are left out, training stops"))
        << text;
    expect_same(other.pipeline.state_dict(), before);  // nor is the step behind run, which is a good one
    other.world.finish();
  }
}

TEST(OnNan, stop_leaves_the_state_before_the_step) {
  const StateDict expected = plain_loop({}, 5);
  for (const bool look_ahead : {true, false}) {
    Job job;
    std::vector<std::string> lines;
    Trainer trainer(job.pipeline, {.epochs = 3, .look_ahead = look_ahead});
    trainer.add_hook(std::make_unique<Notes>(lines));
    Loader train = batches({5});
    EXPECT_EQ(error_text<InvalidLoss>([&] { trainer.fit(train); }),
              "epoch 0, step 5: the loss of training step 5 is nan in micro-batch 1 (stage 1): input 0 of the batch is "
              "not finite: training stops before this step's update; try a lower learning rate, look at the data of "
              "this batch, or leave such steps out (--on-nan skip, TrainerOptions::on_nan)");
    EXPECT_EQ(lines, (std::vector<std::string>{"0:0", "0:1", "0:2", "0:3", "0:4"}));
    job.world.finish();
    expect_same(job.pipeline.state_dict(), expected);
  }
}

TEST(OnNan, go_on_updates_with_such_a_loss) {
  Job job;
  Trainer trainer(job.pipeline, {.on_nan = OnNan::go_on});
  Loader train = batches({5});
  trainer.fit(train);
  EXPECT_TRUE(job.pipeline.state_dict()["b.weight"].isnan().any().item<bool>());
}

// skip cannot mend parameters that are not finite: it stops after ten steps.
TEST(OnNan, skip_ends_where_a_gradient_has_spoiled_the_parameters) {
  Job job;
  int updates = 0;
  job.pipeline.add_gradient_hook([&](const std::string& name, const torch::Tensor& gradient) {
    return name == "b.bias" && updates++ == 0 ? gradient * std::nan("") : torch::Tensor();
  });
  Trainer trainer(job.pipeline, {.on_nan = OnNan::skip});
  Loader train = batches({});
  const std::string text = error_text<InvalidLoss>([&] { trainer.fit(train); });
  EXPECT_TRUE(says(text, "epoch 0, step 11",
                   "parameter 'b.bias' (stage 1) is not finite since the update of training step 0 ",
                   "10 steps in a row"))
      << text;
}

TEST(OnNan, rollback_needs_checkpoints) {
  Job job;
  Trainer trainer(job.pipeline, {.on_nan = OnNan::rollback});
  Loader train = batches({});
  EXPECT_TRUE(says(error_text<ConfigError>([&] { trainer.fit(train); }), "rollback", "CheckpointHook"));
}

/// Trains on `train` with rollback and a checkpoint every `every` steps; returns the lines of Notes.
std::vector<std::string> train_with_rollback(Job& job, Loader train, std::int64_t every,
                                             const TrainerOptions& options) {
  const TemporaryFolder folder("skipped_steps");
  std::vector<std::string> lines;
  Trainer trainer(job.pipeline, options);
  trainer.add_hook(std::make_unique<Notes>(lines));
  trainer.add_hook(std::make_unique<CheckpointHook>(
      CheckpointOptions{.folder = folder.string(), .every = {.seconds = {}, .steps = every}}));
  trainer.fit(train);
  return lines;
}

TEST(OnNan, rollback_leaves_out_the_batch_and_repeats_steps) {
  for (const bool look_ahead : {true, false}) {
    Job job;
    const auto lines =
        train_with_rollback(job, batches({1, 7}), 3, {.on_nan = OnNan::rollback, .look_ahead = look_ahead});
    EXPECT_EQ(lines, (std::vector<std::string>{"0:0", "0:1 left out 1 1 10", "0:0", "0:2", "0:3", "0:4", "0:5", "0:6",
                                               "0:7 left out 1 2 10", "0:6", "0:8", "0:9", "0:10", "0:11",
                                               "epoch of 10 and 2, 100 samples"}));
    expect_same(job.pipeline.state_dict(), plain_loop({1, 7}));
    job.world.finish();
  }
}

/// Cross entropy whose gradient is a NaN where the first target is 0 and the last one 2, and whose value is finite.
Loss with_nan_gradient() {
  Loss loss = cross_entropy;
  loss.name = "with_nan_gradient";
  loss.sum = [](const torch::Tensor& output, const torch::Tensor& target) {
    const torch::Tensor sum = cross_entropy.sum(output, target);
    const bool spoils = target[0].item<std::int64_t>() == 0 && target[-1].item<std::int64_t>() == 2;
    return spoils ? sum + (output.sum() * 0).abs().sqrt() : sum;
  };
  return loss;
}

// The batch before the invalid loss is to blame, and checkpoints with its parameters are not kept.
TEST(OnNan, rollback_leaves_out_the_batch_whose_gradient_has_spoiled_the_parameters) {
  std::set<int> spoiling;
  int number = 0;
  for (auto& [inputs, targets] : batches({})) {
    for (const int first : {0, 5})
      if (targets[0][first].item<std::int64_t>() == 0 && targets[0][first + 4].item<std::int64_t>() == 2)
        spoiling.insert(number);
    ++number;
  }
  ASSERT_GE(spoiling.size(), 2U);
  ASSERT_LE(spoiling.size(), 5U);
  for (const std::int64_t every : {1, 4}) {
    Job job({.stages = 2}, with_nan_gradient());
    const TemporaryFolder folder("skipped_steps");
    Trainer trainer(job.pipeline, {.on_nan = OnNan::rollback});
    std::multiset<std::int64_t> saved;
    CheckpointOptions options{.folder = folder.string(), .every = {.seconds = {}, .steps = every}};
    options.on_saved = [&](const CommittedCheckpoint& one) { saved.insert(one.step); };
    trainer.add_hook(std::make_unique<CheckpointHook>(options));
    Loader train = batches({});
    // The last batch is followed by no step that would show what it has done.
    trainer.fit(train);
    EXPECT_TRUE(saved.contains(4)) << "the checkpoint that was not kept at first";
    for (const std::int64_t step : saved) EXPECT_EQ(saved.count(step), 1U) << step;
    std::set<int> skipped = spoiling;
    skipped.erase(11);
    if (!spoiling.contains(11)) expect_same(job.pipeline.state_dict(), plain_loop(skipped, 12, with_nan_gradient()));
  }
}

TEST(OnNan, rollback_ends_after_ten_steps_in_a_row_or_returns_to_one_checkpoint) {
  const TrainerOptions twice{.epochs = 2, .on_nan = OnNan::rollback};
  {
    Job job;
    const std::string text = error_text<InvalidLoss>([&] {
      train_with_rollback(job, batches({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}), 3, twice);
    });
    EXPECT_TRUE(says(text, "epoch 0, step 10", "10 steps in a row are left out")) << text;
  }
  Job job;
  const std::string text = error_text<InvalidLoss>([&] {
    train_with_rollback(job, batches({1, 3, 5, 7, 9, 11}), 100, twice);
  });
  EXPECT_TRUE(says(text, "has returned to the checkpoint of step 0 10 times, and stops")) << text;
}

TEST(SkippedSteps, are_counted_across_a_resumption) {
  const TemporaryFolder folder("skipped_steps");
  for (const int steps : {6, 12}) {
    Job job;
    std::vector<std::string> lines;
    Trainer trainer(job.pipeline, {.max_steps = steps, .on_nan = OnNan::skip});
    trainer.add_hook(std::make_unique<Notes>(lines));
    trainer.add_hook(std::make_unique<CheckpointHook>(CheckpointOptions{.folder = folder.string()}));
    EXPECT_EQ(trainer.resume(folder.string()), steps == 12);
    Loader train = batches({4, 5, 6});
    trainer.fit(train);
    if (steps == 6) continue;
    EXPECT_EQ(lines, (std::vector<std::string>{"0:6 left out 3 3 10", "0:7", "0:8", "0:9", "0:10", "0:11",
                                               "epoch of 9 and 3, 90 samples"}));
    expect_same(job.pipeline.state_dict(), plain_loop({4, 5, 6}));
  }
}

// Gradients of earlier calls would be lost with the step.
TEST(OnNan, accumulated_gradients_end_training) {
  Job job({.stages = 2}, cross_entropy, /*update_every=*/2);
  Trainer trainer(job.pipeline, {.on_nan = OnNan::skip});
  Loader train = batches({5});
  EXPECT_TRUE(says(error_text<Failure>([&] { trainer.fit(train); }), "the loss is", "epoch 0, step 5"));
}

}  // namespace
}  // namespace penstock::test::skipped_steps_test
