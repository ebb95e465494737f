// The loop: who is told what and when, where it stops, and evaluation against a plain pass over the whole set.
#include "penstock/train/trainer.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/zoo/zoo.h"
#include "tests/base/complaint.h"

namespace penstock::test {
namespace {

ImageSet random_images(std::int64_t count) {
  torch::manual_seed(static_cast<std::uint64_t>(count));
  return {.images = torch::randint(0, 256, {count, 1, 4, 4}).to(torch::kUInt8),
          .labels = torch::randint(0, 4, {count}, torch::kInt64),
          .mean = 0.5,
          .std = 0.25};
}

LoaderOptions in_order(std::int64_t batch_size) { return {.batch_size = batch_size, .shuffle = false}; }

struct JobOptions {
  WorldOptions world = {};
  PipelineOptions pipeline = {};
  Loss loss = cross_entropy;
};

/// A small perceptron as a pipeline with an optimiser.
struct Job {
  explicit Job(const JobOptions& options)
      : world(options.world), pipeline(world, network, options.loss, options.pipeline) {
    pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  }
  World world;
  Mlp network{{.inputs = 16, .hidden = {8}, .classes = 4}};
  Pipeline pipeline;
};

/// Writes down every call, one line each.
class Notes : public Hook {
 public:
  Notes(std::vector<std::string>& lines, const std::string& name) : lines_(lines), name_(name) {}
  void on_step(const StepReport& r) override {
    lines_.push_back(say(name_, " ", r.epoch, ":", r.step, "/", r.steps_in_epoch, " ", r.samples));
    EXPECT_GE(r.seconds, 0);
  }
  void on_evaluation(const EvaluationReport& r) override {
    lines_.push_back(say(name_, " evaluated ", r.epoch, " ", r.samples));
  }
  void on_end() override { lines_.push_back(name_ + " end"); }

 private:
  std::vector<std::string>& lines_;
  std::string name_;
};

class Losses : public Hook {
 public:
  explicit Losses(std::vector<double>& losses) : losses_(losses) {}
  void on_step(const StepReport& report) override { losses_.push_back(report.loss); }

 private:
  std::vector<double>& losses_;
};

/// The notes of one training on 25 samples in batches of 10, with a test set of 7.
std::vector<std::string> notes(const TrainerOptions& options) {
  Job job({.world = {.stages = 2}, .pipeline = {.micro_batches = 2}});
  std::vector<std::string> lines;
  Trainer trainer(job.pipeline, options);
  trainer.add_hook(std::make_unique<Notes>(lines, "a"));
  Loader train(random_images(25), {.batch_size = 10}), test(random_images(7), in_order(4));
  trainer.fit(train, &test);
  return lines;
}

using Lines = std::vector<std::string>;

TEST(Fit, tells_every_step_evaluation_and_the_end) {
  EXPECT_EQ(notes({.epochs = 2}),
            (Lines{"a 0:0/3 10", "a 0:1/3 10", "a 0:2/3 5", "a evaluated 0 7", "a 1:0/3 10", "a 1:1/3 10", "a 1:2/3 5",
                   "a evaluated 1 7", "a end"}));
}

TEST(Fit, stops_at_max_steps_over_all_epochs) {
  EXPECT_EQ(notes({.epochs = 9, .max_steps = 5}),
            (Lines{"a 0:0/3 10", "a 0:1/3 10", "a 0:2/3 5", "a evaluated 0 7", "a 1:0/2 10", "a 1:1/2 10",
                   "a evaluated 1 7", "a end"}));
  EXPECT_EQ(notes({.epochs = 9, .max_steps = 3}),
            (Lines{"a 0:0/3 10", "a 0:1/3 10", "a 0:2/3 5", "a evaluated 0 7", "a end"}));
  EXPECT_EQ(notes({.epochs = 1, .max_steps = 99, .evaluate_every = 0}),
            (Lines{"a 0:0/3 10", "a 0:1/3 10", "a 0:2/3 5", "a end"}));
}

TEST(Fit, evaluates_as_often_as_it_is_told_and_after_the_last_epoch) {
  const auto evaluated = [](std::int64_t every) {
    std::string epochs;
    for (const std::string& line : notes({.epochs = 5, .evaluate_every = every}))
      if (line.starts_with("a evaluated ")) epochs += line.substr(12, 2);
    return epochs;
  };
  EXPECT_EQ(evaluated(0), "");
  EXPECT_EQ(evaluated(2), "1 3 4 ");
  EXPECT_EQ(evaluated(7), "4 ");
}

TEST(Fit, hooks_are_called_in_their_order) {
  Job job({});
  std::vector<std::string> lines;
  Trainer trainer(job.pipeline, {.max_steps = 1});
  for (const char* name : {"first", "second"}) trainer.add_hook(std::make_unique<Notes>(lines, name));
  Loader train(random_images(5), in_order(5));
  trainer.fit(train);
  EXPECT_EQ(lines, (Lines{"first 0:0/1 5", "second 0:0/1 5", "first end", "second end"}));
}

TEST(Fit, trains_as_a_loop_over_the_loader_does) {
  const JobOptions options{.world = {.stages = 2}, .pipeline = {.micro_batches = 3, .seed = 4}};
  const LoaderOptions shuffled{.batch_size = 10, .seed = 9};
  Job by_trainer(options), by_loop(options);
  std::vector<double> losses, expected;
  Trainer trainer(by_trainer.pipeline, {.epochs = 2});
  trainer.add_hook(std::make_unique<Losses>(losses));
  Loader train(random_images(25), shuffled), test(random_images(7), in_order(4));
  trainer.fit(train, &test);  // evaluation in between changes nothing

  Loader loader(random_images(25), shuffled);
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto& [inputs, targets] : loader) expected.push_back(by_loop.pipeline.train_step(inputs, targets).loss());
  EXPECT_EQ(losses, expected);
  EXPECT_EQ(losses.size(), 6U);
  const auto state = by_trainer.pipeline.state();
  for (const auto& [name, value] : by_loop.pipeline.state()) EXPECT_TRUE(torch::equal(value, state.at(name))) << name;
}

/// Mean loss and accuracy of the network with the pipeline's values, over the whole set at once.
EvaluationReport plain_evaluation(Pipeline& pipeline, ImageSet set) {
  const std::int64_t samples = set.size();
  Loader whole(std::move(set), in_order(samples));
  const auto state = pipeline.state();
  EvaluationReport report;
  for (auto& [inputs, targets] : whole) {
    const torch::Tensor hidden =
        torch::relu(torch::linear(inputs.flatten(1), state.at("layer1.weight"), state.at("layer1.bias")));
    const torch::Tensor logits = torch::linear(hidden, state.at("layer2.weight"), state.at("layer2.bias"));
    report.loss = torch::nn::functional::cross_entropy(logits, targets).item<double>();
    report.accuracy = logits.argmax(1).eq(targets).sum().item<double>() / static_cast<double>(samples);
    report.samples = samples;
  }
  return report;
}

// 37 samples in batches of 10: the last batch has 7, which 2 replicas and 3 micro-batches cut unevenly again.
TEST(Evaluate, is_exact_over_uneven_batches_stages_replicas_and_reductions) {
  for (const int stages : {1, 2})
    for (const int replicas : {1, 2})
      for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
        SCOPED_TRACE(say("p = ", stages, ", d = ", replicas, reduction == Reduction::sum ? ", sum" : ", mean"));
        Job job({.world = {.stages = stages, .replicas = replicas},
                 .pipeline = {.micro_batches = 3, .reduction = reduction}});
        Trainer trainer(job.pipeline, {});
        Loader train(random_images(25), in_order(10)), test(random_images(37), in_order(10));
        trainer.fit(train);
        const EvaluationReport report = trainer.evaluate(test);
        const EvaluationReport plain = plain_evaluation(job.pipeline, random_images(37));
        EXPECT_EQ(report.samples, 37);
        EXPECT_EQ(report.accuracy, plain.accuracy);
        EXPECT_NEAR(report.loss, plain.loss, 1e-6 * plain.loss);
      }
}

TEST(Evaluate, twice_gives_the_same_and_changes_nothing) {
  Job job({.world = {.stages = 2}, .pipeline = {.micro_batches = 2}});
  Trainer trainer(job.pipeline, {});
  Loader test(random_images(37), {.batch_size = 10, .seed = 3});
  const auto before = job.pipeline.state();
  const EvaluationReport once = trainer.evaluate(test), again = trainer.evaluate(test);
  EXPECT_EQ(once.loss, again.loss);
  EXPECT_EQ(once.accuracy, again.accuracy);
  for (const auto& [name, value] : job.pipeline.state()) EXPECT_TRUE(torch::equal(value, before.at(name))) << name;
}

/// Cross entropy that becomes `value` where a target is 3.
Loss spoiled(double value) {
  Loss loss = cross_entropy;
  loss.name = "spoiled";
  loss.sum = [value](const torch::Tensor& output, const torch::Tensor& target) {
    return cross_entropy.sum(output, target) * (target.eq(3).any().item<bool>() ? value : 1.0);
  };
  return loss;
}

TEST(Fit, a_loss_that_is_no_number_ends_training_after_the_hooks_saw_it) {
  for (const double value : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    Job job({.world = {.stages = 2}, .pipeline = {.micro_batches = 2}, .loss = spoiled(value)});
    ImageSet set = random_images(50);
    set.labels.fill_(1);
    set.labels[23] = 3;  // the third batch of ten
    Loader train(set, in_order(10));
    std::vector<std::string> lines;
    std::vector<double> losses;
    Trainer trainer(job.pipeline, {.epochs = 3});
    trainer.add_hook(std::make_unique<Notes>(lines, "a"));
    trainer.add_hook(std::make_unique<Losses>(losses));
    const std::string text = complaint<Failure>([&] { trainer.fit(train); });
    EXPECT_TRUE(says(text, "the loss is", "epoch 0, step 2", "lower learning rate")) << text;
    EXPECT_EQ(lines, (Lines{"a 0:0/5 10", "a 0:1/5 10", "a 0:2/5 10", "a end"}));
    ASSERT_EQ(losses.size(), 3U);
    EXPECT_TRUE(std::isfinite(losses[1]));
    EXPECT_FALSE(std::isfinite(losses[2]));
  }
}

TEST(Trainer, refuses_options_that_cannot_be) {
  Job job({});
  const auto refusal = [&](const TrainerOptions& options) {
    return complaint<ConfigError>([&] { Trainer(job.pipeline, options); });
  };
  EXPECT_EQ(refusal({.epochs = 0}), "epochs = 0, but training takes at least 1");
  EXPECT_EQ(refusal({.max_steps = 0}), "steps = 0, but training takes at least 1");
  EXPECT_TRUE(says(refusal({.evaluate_every = -1}), "evaluation every -1 epochs", "0 for never"));
}

TEST(ForThisProcess, threads_read_whole_batches) {
  Job job({.world = {.stages = 2, .replicas = 2}});
  const LoaderOptions options = for_this_process(job.pipeline, in_order(10));
  EXPECT_EQ(options.share.index, 0);
  EXPECT_EQ(options.share.of, 1);
  EXPECT_TRUE(options.inputs);
  EXPECT_EQ(options.batch_size, 10);
  EXPECT_FALSE(options.shuffle);
}

}  // namespace
}  // namespace penstock::test
