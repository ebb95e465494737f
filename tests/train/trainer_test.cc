// The training loop: the order of callbacks, when it stops, and evaluation compared with a pass over the whole set.
#include "penstock/train/trainer.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/train/hooks.h"
#include "penstock/zoo/zoo.h"
#include "tests/base/error_text.h"

namespace penstock::test::trainer_test {
namespace {

ImageSet random_images(std::int64_t count) {
  torch::manual_seed(static_cast<std::uint64_t>(count));
  return {.images = torch::randint(0, 256, {count, 1, 4, 4}).to(torch::kUInt8),
          .labels = torch::randint(0, 4, {count}, torch::kInt64),
          .mean = {0.5},
          .std = {0.25}};
}

LoaderOptions in_order(std::int64_t batch_size) { return {.batch_size = batch_size, .shuffle = false}; }

struct JobOptions {
  WorldOptions world = {};
  PipelineOptions pipeline = {};
  Loss loss = cross_entropy;
};

/// A pipeline of a small perceptron with an optimiser.
struct Job {
  explicit Job(const JobOptions& options)
      : world(options.world), pipeline(world, network, options.loss, options.pipeline) {
    pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 0.1); });
  }
  World world;
  Mlp network{{.inputs = 16, .hidden = {8}, .classes = 4}};
  Pipeline pipeline;
};

/// Records every callback, one line each.
class Notes : public Hook {
 public:
  Notes(std::vector<std::string>& lines, const std::string& name) : lines_(lines), name_(name) {}
  void after_step(const StepReport& r) override {
    lines_.push_back(say(name_, " ", r.epoch, ":", r.step, "/", r.steps_in_epoch, " ", r.samples));
    EXPECT_GE(r.seconds, 0);
  }
  void after_test(const EvaluationReport& r) override {
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
  void after_step(const StepReport& report) override { losses_.push_back(report.loss); }

 private:
  std::vector<double>& losses_;
};

/// The record of one training on 25 samples in batches of 10, with a test set of 7.
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

TEST(Fit, calls_hooks_for_steps_tests_and_the_end) {
  EXPECT_EQ(notes({.epochs = 2}), (Lines{"a 0:0/3 10", "a 0:1/3 10", "a 0:2/3 5", "a evaluated 0 7", "a 1:0/3 10",
                                         "a 1:1/3 10", "a 1:2/3 5", "a evaluated 1 7", "a end"}));
}

TEST(Fit, stops_at_max_steps_over_all_epochs) {
  EXPECT_EQ(notes({.epochs = 9, .max_steps = 5}), (Lines{"a 0:0/3 10", "a 0:1/3 10", "a 0:2/3 5", "a evaluated 0 7",
                                                         "a 1:0/2 10", "a 1:1/2 10", "a evaluated 1 7", "a end"}));
  EXPECT_EQ(notes({.epochs = 9, .max_steps = 3}),
            (Lines{"a 0:0/3 10", "a 0:1/3 10", "a 0:2/3 5", "a evaluated 0 7", "a end"}));
  EXPECT_EQ(notes({.epochs = 1, .max_steps = 99, .evaluate_every = 0}),
            (Lines{"a 0:0/3 10", "a 0:1/3 10", "a 0:2/3 5", "a end"}));
}

TEST(Fit, evaluates_at_the_interval_and_after_the_last_epoch) {
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

TEST(Fit, equals_a_loop_over_the_loader) {
  const JobOptions options{.world = {.stages = 2}, .pipeline = {.micro_batches = 3, .seed = 4}};
  const LoaderOptions shuffled{.batch_size = 10, .seed = 9};
  Job by_trainer(options), by_loop(options);
  std::vector<double> losses, expected;
  Trainer trainer(by_trainer.pipeline, {.epochs = 2});
  trainer.add_hook(std::make_unique<Losses>(losses));
  Loader train(random_images(25), shuffled), test(random_images(7), in_order(4));
  trainer.fit(train, &test);  // evaluation in between must change nothing

  Loader loader(random_images(25), shuffled);
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto& [inputs, targets] : loader) expected.push_back(by_loop.pipeline.train_step(inputs, targets).loss());
  EXPECT_EQ(losses, expected);
  EXPECT_EQ(losses.size(), 6U);
  const auto state = by_trainer.pipeline.state_dict();
  for (const auto& [name, value] : by_loop.pipeline.state_dict().pairs())
    EXPECT_TRUE(torch::equal(value, state[name])) << name;
}

/// Mean loss and accuracy of the network with the pipeline's parameters, over the whole set at once.
EvaluationReport plain_evaluation(Pipeline& pipeline, ImageSet set) {
  const std::int64_t samples = set.size();
  Loader whole(std::move(set), in_order(samples));
  const auto state = pipeline.state_dict();
  EvaluationReport report;
  for (auto& [inputs, targets] : whole) {
    const torch::Tensor hidden =
        torch::relu(torch::linear(inputs[0].flatten(1), state["layer1.weight"], state["layer1.bias"]));
    const torch::Tensor logits = torch::linear(hidden, state["layer2.weight"], state["layer2.bias"]);
    report.loss = torch::nn::functional::cross_entropy(logits, targets).item<double>();
    report.accuracy = logits.argmax(1).eq(targets).sum().item<double>() / static_cast<double>(samples);
    report.samples = samples;
  }
  return report;
}

// 37 samples in batches of 10: the last batch has 7, which 2 replicas and 3 micro-batches split unevenly.
TEST(TrainerEvaluate, is_exact_over_uneven_batches_stages_replicas_and_reductions) {
  for (const int stages : {1, 2})
    for (const int replicas : {1, 2})
      for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
        SCOPED_TRACE(say("p = ", stages, ", d = ", replicas, reduction == Reduction::sum ? ", sum" : ", mean"));
        Job job({.world = {.stages = stages, .replicas = replicas},
                 .pipeline = {.micro_batches = 3, .loss_reduction = {.reduction = reduction}}});
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

/// Records every callback by a short name.
class Points : public Hook {
 public:
  explicit Points(std::string& text, int priority = 10) : Hook(priority), text_(text) {}
  void attached(Trainer& trainer) override { note(say("attached:", trainer.options().epochs)); }
  void before_train() override { note("train("); }
  void after_train() override { note(")train"); }
  void on_end() override { note("end"); }
  void before_epoch(const TrainingPosition& m) override { note(say("epoch", m.epoch, "of", m.steps_in_epoch, "(")); }
  void after_epoch(const EpochReport& r) override { note(say(")epoch", r.epoch, ":", r.steps, ":", r.samples)); }
  void before_step(const TrainingPosition& m) override { note(say("step", m.step, "@", m.completed, "(")); }
  void after_step(const StepReport& r) override { note(say(")step", r.step)); }
  void before_test(const TrainingPosition& m) override { note(say("test", m.epoch, "of", m.steps_in_epoch, "(")); }
  void after_test(const EvaluationReport& r) override { note(say(")test", r.epoch)); }
  void before_test_step(const TrainingPosition& m) override { note(say("t", m.step, "(")); }
  void after_test_step(const TestStepReport& r) override { note(say(")t", r.step, ":", r.samples)); }

 private:
  void note(const std::string& what) { text_ += (text_.empty() ? "" : " ") + what; }
  std::string& text_;
};

TEST(Fit, calls_every_callback) {
  const auto points = [](bool look_ahead) {
    Job job({.world = {.stages = 2}});
    std::string text;
    Trainer trainer(job.pipeline, {.max_steps = 2, .look_ahead = look_ahead});
    trainer.add_hook(std::make_unique<Points>(text));
    Loader train(random_images(25), in_order(10)), test(random_images(7), in_order(4));
    trainer.fit(train, test);
    return text;
  };
  const std::string end = " )epoch0:2:20 test0of2( t0( t1( )t0:4 )t1:3 )test0 )train end";
  EXPECT_EQ(points(true), "attached:1 train( epoch0of2( step0@0( step1@1( )step0 )step1" + end);
  EXPECT_EQ(points(false), "attached:1 train( epoch0of2( step0@0( )step0 step1@1( )step1" + end);
}

TEST(Fit, calls_hooks_in_the_order_of_priorities) {
  Job job({});
  std::vector<std::string> lines;
  class Named : public Hook {
   public:
    Named(std::vector<std::string>& all, const std::string& name, int priority)
        : Hook(priority), all_(all), name_(name) {}
    void before_train() override { all_.push_back(name_); }

   private:
    std::vector<std::string>& all_;
    std::string name_;
  };
  Trainer trainer(job.pipeline, {.max_steps = 1});
  trainer.add_hook(std::make_unique<Named>(lines, "a10", 10));
  trainer.add_hook(std::make_unique<Named>(lines, "b10", 10));
  trainer.add_hook(std::make_unique<Named>(lines, "c0", 0));
  trainer.add_hook(std::make_unique<Named>(lines, "d1", 1));
  trainer.add_hook(std::make_unique<Named>(lines, "e0", 0));
  Loader train(random_images(5), in_order(5));
  trainer.fit(train);
  EXPECT_EQ(lines, (Lines{"c0", "e0", "d1", "a10", "b10"}));
}

/// Sets the learning rate to 0 and stops after a later step.
class Steering : public Hook {
 public:
  void attached(Trainer& trainer) override { trainer_ = &trainer; }
  void before_step(const TrainingPosition& position) override {
    if (position.completed == 2) trainer_->pipeline().set_learning_rate(0);
  }
  void after_step(const StepReport& report) override {
    if (report.step == 3) trainer_->stop("enough");
  }

 private:
  Trainer* trainer_ = nullptr;
};

TEST(Fit, a_hook_can_stop_it_and_change_the_learning_rate) {
  Job job({.world = {.stages = 2}, .pipeline = {.micro_batches = 2}}), two_steps({.pipeline = {.micro_batches = 2}});
  std::vector<std::string> lines;
  Trainer trainer(job.pipeline, {.epochs = 3});
  trainer.add_hook(std::make_unique<Notes>(lines, "a"));
  trainer.add_hook(std::make_unique<Steering>());
  const LossHook& losses = trainer.add_hook(std::make_unique<LossHook>());
  Loader train(random_images(100), in_order(10)), again(random_images(100), in_order(10));
  Loader test(random_images(7), in_order(4));
  trainer.fit(train, &test);
  EXPECT_EQ(trainer.stopped(), "enough");
  // One step was submitted already.
  EXPECT_EQ(lines, (Lines{"a 0:0/10 10", "a 0:1/10 10", "a 0:2/10 10", "a 0:3/10 10", "a 0:4/10 10", "a evaluated 0 7",
                          "a end"}));
  EXPECT_EQ(losses.train().size(), 1U);
  EXPECT_EQ(losses.test().size(), 1U);
  // From the third step on, parameters did not change.
  Trainer(two_steps.pipeline, {.max_steps = 2}).fit(again);
  const auto state = two_steps.pipeline.state_dict();
  for (const auto& [name, value] : job.pipeline.state_dict().pairs())
    EXPECT_TRUE(torch::equal(value, state[name])) << name;
}

TEST(Fit, stops_early_without_progress) {
  Job job({});
  job.pipeline.set_learning_rate(0);  // the test loss never changes
  std::vector<std::string> lines;
  Trainer trainer(job.pipeline, {.epochs = 9});
  const EarlyStopHook& early = trainer.add_hook(std::make_unique<EarlyStopHook>(EarlyStop{.patience = 2}));
  trainer.add_hook(std::make_unique<Notes>(lines, "a"));
  Loader train(random_images(5), in_order(5)), test(random_images(7), in_order(4));
  trainer.fit(train, &test);
  EXPECT_TRUE(says(trainer.stopped().value_or(""), "test loss has been no better than", "of epoch 0", "2 tests"));
  EXPECT_EQ(lines.size(), 7U);
  EXPECT_EQ(early.best_epoch(), 0);
}

TEST(Fit, epoch_loss_is_the_mean_over_its_samples) {
  Job job({.world = {.stages = 2, .replicas = 2},
           .pipeline = {.micro_batches = 2, .loss_reduction = {.reduction = Reduction::sum}}});
  job.pipeline.set_learning_rate(0);
  Trainer trainer(job.pipeline, {});
  const LossHook& losses = trainer.add_hook(std::make_unique<LossHook>());
  Loader train(random_images(25), in_order(10));
  trainer.fit(train);
  ASSERT_EQ(losses.train().size(), 1U);
  EXPECT_NEAR(losses.train()[0], plain_evaluation(job.pipeline, random_images(25)).loss, 1e-6);
}

TEST(Fit, reports_the_rate_of_the_next_epoch) {
  Job job({});
  class Rates : public Hook {
   public:
    explicit Rates(std::vector<double>& all) : all_(all) {}
    void after_epoch(const EpochReport& report) override { all_.push_back(report.next_learning_rate.value_or(-1)); }

   private:
    std::vector<double>& all_;
  };
  std::vector<double> rates;
  Trainer trainer(job.pipeline,
                  {.epochs = 2, .learning_rate = LearningRatePlan{.schedule = "linear", .rate = 1e-3, .warmup = 1}});
  trainer.add_hook(std::make_unique<Rates>(rates));
  Loader train(random_images(5), in_order(5));
  trainer.fit(train);
  EXPECT_EQ(rates, (std::vector<double>{1e-3, 0}));
}

TEST(Fit, measures_idle_time_and_memory_on_request) {
  class Measures : public Hook {
   public:
    explicit Measures(std::vector<StepReport>& all) : all_(all) {}
    void after_step(const StepReport& report) override { all_.push_back(report); }

   private:
    std::vector<StepReport>& all_;
  };
  for (const bool measure : {false, true}) {
    Job job({.world = {.stages = 2}, .pipeline = {.micro_batches = 4, .schedule = "gpipe"}});
    std::vector<StepReport> reports;
    Trainer trainer(job.pipeline, {.measure = measure});
    trainer.add_hook(std::make_unique<Measures>(reports));
    Loader train(random_images(25), in_order(10));
    trainer.fit(train);
    ASSERT_EQ(reports.size(), 3U);
    for (const StepReport& report : reports) {
      EXPECT_EQ(report.bubble.has_value(), measure);
      EXPECT_EQ(report.peak_activations, measure ? std::optional(4) : std::nullopt);
      if (!measure) continue;
      // Two ranks: neither is idle all the time, nor never.
      EXPECT_TRUE(*report.bubble > 0 && *report.bubble < 1) << *report.bubble;
      EXPECT_GT(*report.peak_resident_bytes, 1 << 20);
    }
  }
}

TEST(TrainerEvaluate, counts_custom_metrics) {
  Job job({.world = {.stages = 2, .replicas = 2}, .pipeline = {.micro_batches = 3}});
  const Metric zeros{
      "zeros", [](const torch::Tensor&, const torch::Tensor& target) { return target.eq(0).sum().item<double>(); }};
  Trainer trainer(job.pipeline, {.metrics = std::vector{zeros}});
  Loader test(random_images(37), in_order(10));
  const EvaluationReport report = trainer.evaluate(test);
  EXPECT_FALSE(report.accuracy.has_value());
  ASSERT_EQ(report.metrics.size(), 1U);
  EXPECT_EQ(report.metrics[0].name, "zeros");
  EXPECT_EQ(report.metrics[0].sum, random_images(37).labels.eq(0).sum().item<double>());
  EXPECT_EQ(report.metrics[0].mean, report.metrics[0].sum / 37);

  const AccuracyHook& accuracy = trainer.add_hook(std::make_unique<AccuracyHook>());
  const EvaluationReport both = trainer.evaluate(test);
  EXPECT_EQ(both.metrics.size(), 2U);
  EXPECT_EQ(accuracy.test(), (std::vector<double>{both.accuracy.value_or(-1)}));
  EXPECT_EQ(both.accuracy, plain_evaluation(job.pipeline, random_images(37)).accuracy);
}

TEST(Predict, returns_the_outputs_of_the_whole_set_in_order) {
  for (const int replicas : {1, 2}) {
    Job job({.world = {.stages = 2, .replicas = replicas}, .pipeline = {.micro_batches = 3}});
    Trainer trainer(job.pipeline);
    Loader batches(random_images(37), in_order(10)), whole(random_images(37), in_order(37));
    const Tensors outputs = trainer.predict(batches);
    ASSERT_EQ(outputs.size(), 1U);
    EXPECT_EQ(outputs[0].sizes(), (std::vector<std::int64_t>{37, 4}));
    const torch::Tensor targets = whole.begin()->targets;
    const double right = outputs[0].argmax(1).eq(targets).sum().item<double>();
    EXPECT_EQ(right / 37, plain_evaluation(job.pipeline, random_images(37)).accuracy);
  }
}

TEST(TrainerEvaluate, is_repeatable_and_changes_nothing) {
  Job job({.world = {.stages = 2}, .pipeline = {.micro_batches = 2}});
  Trainer trainer(job.pipeline, {});
  Loader test(random_images(37), {.batch_size = 10, .seed = 3});
  const auto before = job.pipeline.state_dict();
  const EvaluationReport once = trainer.evaluate(test), again = trainer.evaluate(test);
  EXPECT_EQ(once.loss, again.loss);
  EXPECT_EQ(once.accuracy, again.accuracy);
  for (const auto& [name, value] : job.pipeline.state_dict().pairs())
    EXPECT_TRUE(torch::equal(value, before[name])) << name;
}

TEST(Fit, refuses_batches_of_fewer_samples_than_micro_batches) {
  Job job({.world = {.replicas = 2}, .pipeline = {.micro_batches = 4}});
  Trainer trainer(job.pipeline);
  Loader small(random_images(18), in_order(6));
  EXPECT_EQ(
      error_text<ConfigError>([&] { trainer.fit(small); }),
      "batches of 6 samples have fewer than 1 for each of 4 micro-batches on each of 2 replicas: pass batches of 8 "
      "samples or more, or fewer micro-batches");
  Loader short_last(random_images(19), in_order(8));
  EXPECT_NO_THROW(trainer.fit(short_last)) << "3 samples at the end";
  Loader all_at_once(random_images(3), in_order(8));
  EXPECT_NO_THROW(trainer.fit(all_at_once)) << "there are no more";
}

TEST(Trainer, refuses_invalid_options) {
  Job job({});
  const auto refusal = [&](const TrainerOptions& options) {
    return error_text<ConfigError>([&] { Trainer(job.pipeline, options); });
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
}  // namespace penstock::test::trainer_test
