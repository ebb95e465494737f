// A training that is interrupted and resumed, with other stages and schedules, ends with the bits of one that is not.
#include <filesystem>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/checkpoint/checkpoint_reader.h"
#include "penstock/checkpoint/durable_files.h"
#include "penstock/penstock.h"
#include "tests/base/error_text.h"
#include "tests/checkpoint/small_checkpoint.h"
#include "tests/support/expect_same.h"
#include "tests/support/pipeline_of.h"
#include "tests/support/temporary_folder.h"

namespace penstock::test::resume_test {
namespace {

constexpr std::int64_t samples = 62, batch_size = 9, steps_per_epoch = 7, epochs = 3;  // the last batch has 8

ImageSet random_images(std::int64_t count) {
  torch::manual_seed(3);
  return {.images = torch::randint(0, 256, {count, 1, 4, 4}).to(torch::kUInt8),
          .labels = torch::randint(0, 4, {count}, torch::kInt64),
          .mean = {0.5},
          .std = {0.25}};
}

/// Running statistics, random numbers, and a parameter that is used twice.
struct Network : Cell {
  Layer first = add("first", [] { return torch::nn::Linear(16, 12); });
  Layer norm = add("norm", [] { return torch::nn::BatchNorm1d(12); });
  Layer drop = add("drop", [] { return torch::nn::Dropout(0.3); });
  Layer middle = add("middle", [] { return torch::nn::Linear(12, 12); });
  Layer relu = add("relu", [] { return torch::nn::ReLU(); });
  Layer last = add("last", [] { return torch::nn::Linear(12, 4); });
  Value forward(Value x) override { return last(relu(middle(drop(relu(middle(norm(first(flatten(x, 1))))))))); }
};

const OptimizerFactory with_momentum = sgd({.learning_rate = 0.1, .momentum = 0.9});

/// What a user writes; its state consists of tensors and a number.
std::shared_ptr<torch::optim::Optimizer> rmsprop(const std::vector<torch::Tensor>& parameters) {
  return std::make_shared<torch::optim::RMSprop>(parameters, torch::optim::RMSpropOptions(1e-3).momentum(0.9));
}

/// Adds up the losses that it has seen.
class Sum : public Hook {
 public:
  void after_step(const StepReport& report) override { sum_ += report.loss; }
  StateValues save() const override { return {{"sum", sum_}}; }
  void load(const StateValues& state) override { sum_ = number_in(state, "sum"); }
  double sum() const { return sum_; }

 private:
  double sum_ = 0;
};

/// Lets a trainer take `count` steps.
auto stop_after(std::int64_t count) {
  return [count, asked = std::int64_t{0}]() mutable {
    return ++asked > count ? std::optional(StopRequest{"enough"}) : std::nullopt;
  };
}

void fit(Trainer& trainer, std::int64_t test_samples) {
  Loader train(random_images(samples), {.batch_size = batch_size, .seed = 5});
  Loader test(random_images(test_samples), {.batch_size = 9, .shuffle = false});
  trainer.fit(train, test);
}

struct Layout {
  int stages = 1;
  std::string schedule = "1f1b";
  int chunks = 0;
};

struct Run {
  std::string folder;
  Layout layout = {};
  std::string optimizer = "sgd";
  std::optional<std::int64_t> stop_at = {};  // steps of this run
  bool resumes = false;
  bool keeps_average = false;
  CheckpointEvery every = {.steps = 5};
};

double run(const Run& what) {
  PipelineOf<Network> pipeline(
      {.stages = what.layout.stages},
      {.micro_batches = 4, .schedule = what.layout.schedule, .chunks = what.layout.chunks, .seed = 7});
  if (what.optimizer == "sgd") pipeline.optimize_with(with_momentum);
  if (what.optimizer == "adamw") pipeline.optimize_with(adamw({.learning_rate = 0.01, .weight_decay = 0.01}));
  if (what.optimizer == "rmsprop") pipeline.optimize_with(rmsprop);
  std::optional<WeightAverage> average;
  if (what.keeps_average) average.emplace(pipeline, 0.9);
  TrainerOptions options{.epochs = epochs, .learning_rate = LearningRatePlan{"cosine", 0.05, 4, false}};
  if (what.stop_at) options.stop_when = stop_after(*what.stop_at);
  Trainer trainer(pipeline, options);
  auto& sum = trainer.add_hook(std::make_unique<Sum>());
  trainer.add_hook(std::make_unique<EarlyStopHook>(EarlyStop{.patience = 50}));
  trainer.add_hook(std::make_unique<CheckpointHook>(CheckpointOptions{.folder = what.folder, .every = what.every}));
  if (what.resumes) {
    EXPECT_TRUE(trainer.resume(what.folder));
  }
  fit(trainer, 9);
  EXPECT_EQ(trainer.interrupted().has_value(), what.stop_at.has_value());
  return sum.sum();
}

/// Everything of the newest checkpoint but the division into files.
std::map<std::string, std::string> contents(const std::string& folder) {
  const auto newest = newest_checkpoint(folder, CheckpointCheck::checksums);
  EXPECT_TRUE(newest.checkpoint && newest.damaged.empty());
  Manifest manifest = newest.checkpoint->manifest();
  std::map<std::string, std::string> all;
  for (const FileRecord& file : manifest.files)
    for (const TensorRecord& tensor : file.tensors)
      all[say(to_string(file.kind), " ", tensor.name, " ", shape_text(tensor.shape))] = to_string(tensor.checksum);
  manifest.files.clear();
  all["manifest"] = write_manifest(manifest);
  return all;
}

class Resume : public testing::Test {
 protected:
  const TemporaryFolder folder_{"resume"};
};

TEST_F(Resume, gives_the_same_bits_in_any_layout) {
  const std::vector<Layout> layouts = {{2, "gpipe"}, {3, "1f1b"}, {4, "zb-h1"}, {2, "interleaved", 2}, {1, "1f1b"}};
  for (const std::string optimizer : {"sgd", "adamw", "rmsprop"}) {
    const std::string undisturbed = folder_ / (optimizer + "-undisturbed");
    const double sum = run({.folder = undisturbed, .optimizer = optimizer});
    const auto expected = contents(undisturbed);
    // The first step, the middle and the edge of an epoch, the last step but one; each from one layout to the next.
    const std::vector<std::int64_t> stops = {1, steps_per_epoch / 2, steps_per_epoch, epochs * steps_per_epoch - 1};
    for (std::size_t i = 0; i < stops.size(); ++i) {
      const std::string folder = folder_ / say(optimizer, "-", stops[i]);
      run({.folder = folder, .layout = layouts[i], .optimizer = optimizer, .stop_at = stops[i]});
      const double resumed = run({.folder = folder, .layout = layouts[i + 1], .optimizer = optimizer, .resumes = true});
      EXPECT_EQ(resumed, sum) << optimizer << ", " << stops[i];
      EXPECT_EQ(contents(folder), expected) << optimizer << ", " << stops[i];
    }
  }
}

TEST_F(Resume, does_not_begin_anew_beside_a_checkpoint_of_another_version) {
  run({.folder = folder_ / "run", .stop_at = 2});
  PipelineOf<Network> pipeline({.stages = 2}, {.micro_batches = 4}, with_momentum);
  ASSERT_TRUE(pipeline.load(folder_ / "run"));
  for (const CheckpointPlace& place : list_checkpoints(folder_ / "run")) test::set_version(place.path, "9");
  EXPECT_TRUE(says(error_text<NotReadable>([&] { pipeline.load(folder_ / "run"); }), "has version 9"));
}

TEST_F(Resume, goes_through_many_interruptions) {
  const double sum = run({.folder = folder_ / "undisturbed"});
  double resumed = 0;
  constexpr std::int64_t all = epochs * steps_per_epoch;
  for (std::int64_t i = 0; i < all; ++i)
    resumed = run({.folder = folder_ / "often",
                   .layout = {1 + static_cast<int>(i % 3)},
                   .stop_at = i + 1 < all ? std::optional<std::int64_t>(1) : std::nullopt,
                   .resumes = i > 0});
  EXPECT_EQ(resumed, sum);
  EXPECT_EQ(contents(folder_ / "often"), contents(folder_ / "undisturbed"));
}

/// Counts what it is told about tests.
class TestLog : public Hook {
 public:
  void before_test(const TrainingPosition&) override {
    ++begun;
    if (on_begin) on_begin();
  }
  void before_test_step(const TrainingPosition&) override { ++steps; }
  void after_test(const EvaluationReport& report) override { reports.push_back(report.loss); }
  void after_epoch(const EpochReport&) override { ++epochs; }
  int begun = 0, steps = 0, epochs = 0;
  std::vector<double> reports;
  std::function<void()> on_begin = nullptr;
};

TEST_F(Resume, runs_a_test_that_was_interrupted_again) {
  // A test of three steps; the training ends in the second step of that behind the first epoch.
  const auto train = [&](const std::string& folder, std::int64_t stop_at, bool resumes) {
    PipelineOf<Network> pipeline({.stages = 2}, {.micro_batches = 4, .seed = 7}, with_momentum);
    Trainer trainer(pipeline, {.epochs = 2, .stop_when = stop_after(stop_at)});
    auto& log = trainer.add_hook(std::make_unique<TestLog>());
    trainer.add_hook(std::make_unique<CheckpointHook>(CheckpointOptions{.folder = folder}));
    if (resumes) {
      EXPECT_TRUE(trainer.resume(folder));
    }
    fit(trainer, 27);
    return std::tuple(log.begun, log.steps, log.epochs, log.reports);
  };
  const auto [begun, steps, epoch_reports, reports] = train(folder_ / "undisturbed", 1000, false);
  EXPECT_EQ(std::tuple(begun, steps, epoch_reports, reports.size()), std::tuple(2, 6, 2, 2u));
  EXPECT_EQ(train(folder_ / "run", steps_per_epoch + 1, false), std::tuple(1, 2, 1, std::vector<double>()));
  EXPECT_EQ(train(folder_ / "run", 0, true), std::tuple(1, 1, 0, std::vector<double>())) << "again, in its first step";
  EXPECT_EQ(train(folder_ / "run", 1000, true), std::tuple(2, 6, 1, reports));
  EXPECT_EQ(contents(folder_ / "run"), contents(folder_ / "undisturbed"));
}

TEST_F(Resume, keeps_the_reason_to_stop_through_an_interrupted_test) {
  /// Ends the training behind its third step.
  class StopAtThree : public Hook {
   public:
    void attached(Trainer& trainer) override { trainer_ = &trainer; }
    void after_step(const StepReport& report) override {
      if (report.step == 2) trainer_->stop("enough is learnt");
    }

   private:
    Trainer* trainer_ = nullptr;
  };
  const auto train = [&](bool interrupts) {
    PipelineOf<Network> pipeline({.stages = 2}, {.micro_batches = 4, .seed = 7}, sgd({.learning_rate = 0.1}));
    bool is_in_test = false;
    Trainer trainer(pipeline, {.epochs = 2, .evaluate_every = 2, .stop_when = [&]() -> std::optional<StopRequest> {
                                 return interrupts && is_in_test ? std::optional(StopRequest{"a signal"})
                                                                 : std::nullopt;
                               }});
    trainer.add_hook(std::make_unique<StopAtThree>());
    auto& log = trainer.add_hook(std::make_unique<TestLog>());
    log.on_begin = [&] { is_in_test = true; };
    trainer.add_hook(std::make_unique<CheckpointHook>(CheckpointOptions{.folder = folder_ / "run"}));
    EXPECT_EQ(trainer.resume(folder_ / "run"), !interrupts);
    fit(trainer, 27);
    EXPECT_EQ(trainer.stopped(), "enough is learnt");
    return std::pair(pipeline.training_steps(), log.reports.size());
  };
  const auto interrupted = train(true);
  EXPECT_EQ(interrupted.second, 0U);
  EXPECT_EQ(train(false), std::pair(interrupted.first, std::size_t{1})) << "it owed the test alone";
}

TEST_F(Resume, gradients_that_wait_for_their_update_delay_the_end_of_a_test) {
  const auto train = [&](std::int64_t stop_at, bool resumes) {
    PipelineOf<Network> pipeline({.stages = 2}, {.micro_batches = 4, .update_every = 2, .seed = 7},
                                 sgd({.learning_rate = 0.1}));
    Trainer trainer(pipeline, {.epochs = 2, .stop_when = stop_after(stop_at)});
    trainer.add_hook(std::make_unique<CheckpointHook>(CheckpointOptions{.folder = folder_ / "run"}));
    EXPECT_EQ(trainer.resume(folder_ / "run"), resumes);
    fit(trainer, 27);
    return list_checkpoints(folder_ / "run").front().step;
  };
  // The epoch has 7 steps, so that its test is between two updates.
  EXPECT_EQ(train(steps_per_epoch, false), steps_per_epoch + 1);
  EXPECT_EQ(train(1000, true), 2 * steps_per_epoch);
}

TEST_F(Resume, needs_the_optimiser_of_the_checkpoint) {
  run({.folder = folder_ / "run", .stop_at = 3});
  const auto loads_with = [&](auto optimizer) {
    PipelineOf<Network> pipeline({.stages = 2}, {.micro_batches = 4, .seed = 7}, optimizer);
    return error_text<ConfigError>([&] { pipeline.load(folder_ / "run"); });
  };
  const std::string without = loads_with(sgd({.learning_rate = 0.1}));
  EXPECT_TRUE(
      says(without, "/momentum' is stored, and the optimiser does not keep it: take the optimiser with which it"))
      << without;
  const std::string torch = loads_with(OptimizerFactory(optimizer_factory(rmsprop)));
  EXPECT_TRUE(
      says(torch, "/momentum', cannot be loaded by torch::optim::RMSprop: take the optimiser with which it was"))
      << torch;
}

TEST_F(Resume, after_the_last_step_trains_nothing) {
  run({.folder = folder_ / "run"});
  const auto before = contents(folder_ / "run");
  run({.folder = folder_ / "run", .layout = {2}, .resumes = true});
  EXPECT_EQ(contents(folder_ / "run"), before);
}

TEST_F(Resume, keeps_averages_of_weights) {
  run({.folder = folder_ / "undisturbed", .keeps_average = true});
  run({.folder = folder_ / "run", .layout = {2}, .stop_at = 9, .keeps_average = true});
  run({.folder = folder_ / "run", .layout = {3}, .resumes = true, .keeps_average = true});
  const auto resumed = contents(folder_ / "run");
  EXPECT_EQ(resumed, contents(folder_ / "undisturbed"));
  EXPECT_TRUE(std::any_of(resumed.begin(), resumed.end(),
                          [](const auto& one) { return one.first.starts_with("optimizer last.weight/average"); }));
}

/// Flips a bit of the last tensor of each file.
void damage(const CheckpointPlace& place) {
  for (const auto& file : std::filesystem::directory_iterator(place.path)) {
    if (file.path().extension() != ".safetensors") continue;
    std::string bytes = bytes_of_file(file.path().string());
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write_bytes(file.path().string(), bytes);
  }
}

TEST_F(Resume, skips_a_damaged_checkpoint) {
  run({.folder = folder_ / "undisturbed"});
  run({.folder = folder_ / "run", .stop_at = 12});
  const auto places = list_checkpoints(folder_ / "run");
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(places[0].step, 12);
  EXPECT_EQ(places[1].step, 10);
  damage(places[0]);
  run({.folder = folder_ / "run", .layout = {2}, .resumes = true});
  EXPECT_EQ(contents(folder_ / "run"), contents(folder_ / "undisturbed"));
  EXPECT_TRUE(std::filesystem::exists(places[0].path)) << "a damaged checkpoint was deleted";
}

TEST_F(Resume, skips_a_damaged_checkpoint_however_the_folder_is_written) {
  for (const std::string folder : {"one/", "two//", "./three"}) {
    run({.folder = folder_ / folder, .stop_at = 12});
    damage(list_checkpoints(folder_ / folder)[0]);
    run({.folder = folder_ / folder, .resumes = true});
    EXPECT_EQ(list_checkpoints(folder_ / folder)[0].step, epochs * steps_per_epoch) << folder;
  }
}

TEST_F(Resume, of_damaged_checkpoints_alone_changes_nothing) {
  run({.folder = folder_ / "run", .stop_at = 12});
  for (const CheckpointPlace& place : list_checkpoints(folder_ / "run")) damage(place);
  PipelineOf<Network> pipeline({.stages = 2}, {.micro_batches = 4, .seed = 7}, with_momentum);
  const auto before = pipeline.state_dict();
  Trainer trainer(pipeline, {.epochs = epochs});
  EXPECT_FALSE(trainer.resume(folder_ / "run"));
  expect_same(pipeline.state_dict(), before);
}

TEST_F(Resume, in_the_middle_of_an_epoch_needs_the_same_steps) {
  run({.folder = folder_ / "run", .stop_at = 3});
  PipelineOf<Network> pipeline({.stages = 2}, {.micro_batches = 4, .seed = 7}, with_momentum);
  Trainer trainer(pipeline, {.epochs = epochs});
  ASSERT_TRUE(trainer.resume(folder_ / "run"));
  Loader train(random_images(samples), {.batch_size = 11, .seed = 5});
  EXPECT_TRUE(says(error_text<ConfigError>([&] { trainer.fit(train); }), "an epoch has 6 steps, and had 7"));
}

TEST_F(Resume, without_a_checkpoint_changes_nothing) {
  PipelineOf<Network> pipeline({.stages = 2}, {.micro_batches = 4, .seed = 7}, sgd({.learning_rate = 0.1}));
  Trainer trainer(pipeline, {.epochs = 1});
  EXPECT_FALSE(trainer.resume(folder_ / "nothing"));
  std::filesystem::create_directories(folder_ / "empty");
  EXPECT_FALSE(trainer.resume(folder_ / "empty"));
}

struct Other : Cell {
  Layer first = add("first", [] { return torch::nn::Linear(16, 13); });
  Layer final_layer = add("final", [] { return torch::nn::Linear(13, 4); });
  Value forward(Value x) override { return final_layer(first(flatten(x, 1))); }
};

TEST_F(Resume, refuses_the_checkpoint_of_another_network) {
  run({.folder = folder_ / "run", .stop_at = 3});
  World world({.stages = 2});
  Other network;
  Pipeline pipeline(world, network, cross_entropy, {.micro_batches = 4});
  pipeline.optimize_with(sgd({.learning_rate = 0.1, .momentum = 0.9}));
  const auto before = pipeline.state_dict();
  const std::string text = error_text<ConfigError>([&] { pipeline.load(folder_ / "run"); });
  EXPECT_TRUE(says(text,
                   "is the checkpoint of another network: 'first.weight' is float of shape [13, 16] in the network "
                   "and float of shape [12, 16] in the checkpoint",
                   "'final.weight' of shape [4, 13], which the checkpoint", "and 1 more"))
      << text;
  expect_same(pipeline.state_dict(), before);
}

TEST_F(Resume, a_state_with_nan_replaces_no_checkpoint) {
  PipelineOf<Network> pipeline({.stages = 2}, {.micro_batches = 2, .seed = 7}, sgd({.learning_rate = 0.1}));
  const torch::Tensor images = torch::randn({8, 1, 4, 4}), labels = torch::zeros({8}, torch::kInt64);
  pipeline.train_step(images, labels);
  pipeline.save(folder_ / "run");
  pipeline.train_step(images * std::numeric_limits<float>::quiet_NaN(), labels);
  pipeline.save(folder_ / "run");
  const auto places = list_checkpoints(folder_ / "run");
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(places[0].step, 1);
}

TEST_F(Resume, a_folder_has_one_writer_and_no_later_steps) {
  run({.folder = folder_ / "run", .stop_at = 3});
  PipelineOf<Network> pipeline({.stages = 1}, {.micro_batches = 4, .seed = 7});
  EXPECT_TRUE(says(error_text<ConfigError>([&] { pipeline.save(folder_ / "run"); }),
                   "has a checkpoint of step 3, and training begins at step 0: resume from it, or use another "
                   "folder"));
  const auto saver = pipeline.checkpoints({.folder = folder_ / "mine"});
  EXPECT_TRUE(says(error_text<ConfigError>([&] { pipeline.save(folder_ / "mine"); }), "another process writes"));
}

TEST_F(Resume, gradients_that_wait_for_their_update_are_not_saved) {
  PipelineOf<Network> pipeline({.stages = 2}, {.micro_batches = 2, .seed = 7}, sgd({.learning_rate = 0.1}));
  pipeline.forward_backward(torch::randn({8, 1, 4, 4}), torch::zeros({8}, torch::kInt64));
  EXPECT_TRUE(says(error_text<ConfigError>([&] { pipeline.save(folder_ / "run"); }), "call step() first"));
  pipeline.step();
  pipeline.save(folder_ / "run");
}

}  // namespace
}  // namespace penstock::test::resume_test
