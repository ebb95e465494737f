// The exact output of the ready-made hooks.
#include "penstock/train/hooks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::test::hooks_test {
namespace {

StepReport step_of(std::int64_t step, double loss) {
  return {.epoch = 0, .step = step, .steps_in_epoch = 60, .samples = 32, .loss = loss, .seconds = 0.5};
}

const EvaluationReport evaluation{.epoch = 1, .samples = 10000, .loss = 0.2912345678, .accuracy = 0.91834};

/// The output of `hook` while `use` runs.
template <class Use>
std::string written(const ConsoleOptions& options, Use use) {
  std::ostringstream out;
  const auto hook = console_hook(out, options);
  use(*hook);
  return out.str();
}

TEST(ConsoleHook, a_line_every_ten_steps_from_the_first) {
  const std::string text = written({}, [](Hook& hook) {
    for (std::int64_t step = 0; step <= 20; ++step) hook.after_step(step_of(step, 2.3));
    hook.on_end();
  });
  EXPECT_EQ(text,
            "epoch: 0 step: 0, loss is 2.3\n"
            "epoch: 0 step: 10, loss is 2.3\n"
            "epoch: 0 step: 20, loss is 2.3\n");
}

TEST(ConsoleHook, nine_digits) {
  const auto line = [](double loss) {
    return written({.log_every = 1}, [&](Hook& hook) { hook.after_step(step_of(3, loss)); });
  };
  EXPECT_EQ(line(2.27094173123), "epoch: 0 step: 3, loss is 2.27094173\n");
  EXPECT_EQ(line(0.1 + 0.2), "epoch: 0 step: 3, loss is 0.3\n");
  EXPECT_EQ(line(1.5e-7), "epoch: 0 step: 3, loss is 1.5e-07\n");
  EXPECT_EQ(line(std::numeric_limits<double>::infinity()), "epoch: 0 step: 3, loss is inf\n");
}

TEST(ConsoleHook, log_every) {
  const auto lines = [](std::int64_t every) {
    const std::string text = written({.log_every = every}, [](Hook& hook) {
      for (std::int64_t step = 0; step < 12; ++step) hook.after_step(step_of(step, 1));
    });
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(lines(1), 12);
  EXPECT_EQ(lines(5), 3);
  EXPECT_EQ(lines(100), 1);
  EXPECT_EQ(lines(0), 0);
}

TEST(ConsoleHook, always_writes_evaluations) {
  EXPECT_EQ(written({.log_every = 0}, [](Hook& hook) { hook.after_test(evaluation); }),
            "epoch: 1 test: loss 0.291235, accuracy 0.9183\n");
}

const std::string clear_line = "\r\x1b[K";

TEST(ConsoleHook, a_bar_below_the_lines_on_a_terminal) {
  const std::string text = written({.is_terminal = true}, [](Hook& hook) {
    hook.after_step(step_of(0, 1));
    hook.after_test(evaluation);
  });
  EXPECT_EQ(text, "epoch: 0 step: 0, loss is 1\n" + clear_line + "[..............................] 1/60" + clear_line +
                      "epoch: 1 test: loss 0.291235, accuracy 0.9183\n");
}

TEST(ConsoleHook, removes_the_bar_at_the_end) {
  const std::string text = written({.log_every = 0, .is_terminal = true}, [](Hook& hook) {
    hook.after_step({.step = 0, .steps_in_epoch = 3, .samples = 8, .loss = 1, .seconds = 9});
    hook.on_end();
    hook.on_end();
  });
  EXPECT_EQ(text, clear_line + "[##########....................] 1/3" + clear_line);
}

TEST(ConsoleHook, lines_of_other_hooks_replace_the_bar) {
  std::ostringstream out;
  const auto lines = loss_monitor_hook(out), bar = console_hook(out, {.log_every = 0, .is_terminal = true});
  for (std::int64_t step = 0; step < 2; ++step) {
    for (Hook* hook : {lines.get(), bar.get()}) hook->before_step({.step = step});
    for (Hook* hook : {lines.get(), bar.get()})
      hook->after_step({.step = step, .steps_in_epoch = 30, .samples = 8, .loss = 1, .seconds = 0});
  }
  EXPECT_EQ(out.str(), "epoch: 1 step: 1, loss is 1\n" + clear_line + "[#.............................] 1/30" +
                           clear_line + "epoch: 1 step: 2, loss is 1\n" + clear_line +
                           "[##............................] 2/30");
}

TEST(ConsoleHook, throughput_excludes_the_first_step) {
  const std::string text = written({.log_every = 0, .is_terminal = true}, [](Hook& hook) {
    hook.after_step({.step = 0, .steps_in_epoch = 2, .samples = 8, .loss = 1, .seconds = 9});
    hook.after_step({.step = 1, .steps_in_epoch = 2, .samples = 8, .loss = 1, .seconds = 0.25});
  });
  EXPECT_TRUE(text.ends_with(clear_line + "[##############################] 2/2  32 samples/s  0 s left" + clear_line))
      << text;
}

std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(JsonHook, lines_parse_back) {
  std::ostringstream out;
  const auto hook = json_hook(out);
  hook->after_step({.epoch = 2, .step = 7, .steps_in_epoch = 60, .samples = 32, .loss = 0.1 + 0.2, .seconds = 0.5});
  hook->after_test(evaluation);
  hook->on_end();
  ASSERT_TRUE(out.str().ends_with("\n"));
  const auto lines = json_lines(out.str());
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], (nlohmann::json{{"epoch", 2},
                                      {"step", 7},
                                      {"loss", 0.1 + 0.2},
                                      {"samples", 32},
                                      {"step_ms", 500.0},
                                      {"samples_per_s", 64.0}}));
  EXPECT_EQ(lines[0].at("loss").get<double>(), 0.1 + 0.2);  // bitwise
  EXPECT_EQ(lines[1], (nlohmann::json{{"epoch", 1},
                                      {"test_loss", evaluation.loss},
                                      {"test_accuracy", *evaluation.accuracy},
                                      {"test_samples", 10000}}));
}

TEST(JsonHook, a_loss_that_is_not_finite_is_null) {
  std::ostringstream out;
  json_hook(out)->after_step(step_of(0, std::nan("")));
  EXPECT_TRUE(json_lines(out.str()).at(0).at("loss").is_null());
}

TEST(JsonHook, a_step_that_was_left_out) {
  std::ostringstream out;
  json_hook(out)->after_skipped_step(
      {.epoch = 1, .step = 7, .steps_in_epoch = 60, .samples = 32, .in_a_row = 1, .count = 2, .reason = "the loss"});
  EXPECT_EQ(json_lines(out.str()).at(0),
            (nlohmann::json{{"epoch", 1}, {"step", 7}, {"left_out", 2}, {"reason", "the loss"}, {"samples", 32}}));
}

TEST(JsonHook, optional_fields_of_a_step) {
  std::ostringstream out;
  StepReport report = step_of(0, 1);
  report.targets = 32 * 64;
  report.learning_rate = 0.5;
  report.gradient_norm = 3;
  report.bubble = 0.25;
  report.peak_activations = 2;
  report.peak_resident_bytes = 1 << 20;
  json_hook(out)->after_step(report);
  EXPECT_EQ(json_lines(out.str()).at(0), (nlohmann::json{{"epoch", 0},
                                                         {"step", 0},
                                                         {"loss", 1.0},
                                                         {"lr", 0.5},
                                                         {"grad_norm", 3.0},
                                                         {"samples", 32},
                                                         {"step_ms", 500.0},
                                                         {"samples_per_s", 64.0},
                                                         {"tokens_per_s", 4096.0},
                                                         {"bubble", 0.25},
                                                         {"peak_activations", 2},
                                                         {"peak_resident_bytes", 1 << 20}}));
}

EvaluationReport without_accuracy() {
  EvaluationReport report{.epoch = 1, .samples = 10, .loss = 0.5};
  report.metrics.push_back({"close", 4, 0.4});
  return report;
}

TEST(JsonHook, custom_metrics) {
  std::ostringstream out;
  json_hook(out)->after_test(without_accuracy());
  EXPECT_EQ(json_lines(out.str()).at(0),
            (nlohmann::json{{"epoch", 1}, {"test_loss", 0.5}, {"test_close", 0.4}, {"test_samples", 10}}));
}

TEST(ConsoleHook, custom_metrics) {
  EXPECT_EQ(written({}, [](Hook& hook) { hook.after_test(without_accuracy()); }),
            "epoch: 1 test: loss 0.5, close 0.4\n");
}

TEST(ConsoleHook, times_on_request) {
  const std::string text = written({.log_every = 2, .with_times = true}, [](Hook& hook) {
    for (std::int64_t step = 0; step < 3; ++step) hook.after_step(step_of(step, 2));
    hook.after_epoch({.epoch = 0, .steps = 3, .samples = 96, .targets = 96, .loss = 2.5, .seconds = 1.5});
    hook.after_epoch({.epoch = 1, .steps = 3, .samples = 96, .targets = 960, .loss = 2.5, .seconds = 1.5});
  });
  EXPECT_EQ(text,
            "epoch: 0 step: 0, loss is 2, 0.5 s per step\n"
            "epoch: 0 step: 2, loss is 2, 0.5 s per step\n"
            "epoch: 0 train: loss 2.5, 96 samples in 1.5 s, 64 samples/s\n"
            "epoch: 1 train: loss 2.5, 96 samples in 1.5 s, 64 samples/s, 640 tokens/s\n");
}

/// The output of the hook made by `make(stream)` while `use` runs.
template <class Make, class Use>
std::string written_by(Make make, Use use) {
  std::ostringstream out;
  const auto hook = make(out);
  use(*hook);
  return out.str();
}

TEST(EpochLogHook, a_line_for_training_and_one_for_the_test) {
  const std::string text = written_by(epoch_log_hook, [](Hook& hook) {
    hook.after_epoch({.epoch = 0, .steps = 3, .samples = 96, .loss = 6.123456, .next_learning_rate = 0.001});
    hook.after_test(
        {.epoch = 0, .samples = 10, .loss = 5.25, .accuracy = 0.123456, .metrics = {{"correct", 1, 0.123456}}});
    hook.after_epoch({.epoch = 1, .steps = 3, .samples = 96, .loss = 5});
    hook.after_test(without_accuracy());
  });
  EXPECT_EQ(text,
            "[Epoch 0 / Train]: Loss = 6.1235 | LR = 0.001\n"
            "[Epoch 0 / Test]: Loss = 5.25 | Accuracy = 0.12346\n"
            "[Epoch 1 / Train]: Loss = 5\n"
            "[Epoch 1 / Test]: Loss = 0.5 | close = 0.4\n");
}

TEST(LossMonitorHook, counts_from_one) {
  const auto monitor = [](std::int64_t every) {
    return written_by([every](std::ostream& out) { return loss_monitor_hook(out, every); },
                      [](Hook& hook) {
                        for (std::int64_t step = 0; step < 4; ++step) hook.after_step(step_of(step, 4.61));
                      });
  };
  EXPECT_EQ(monitor(3), "epoch: 1 step: 3, loss is 4.61\n");
  EXPECT_TRUE(monitor(1).starts_with("epoch: 1 step: 1, loss is 4.61\nepoch: 1 step: 2, "));
}

TEST(LossMonitorHook, stops_at_a_loss_that_is_not_finite) {
  std::ostringstream out;
  const auto hook = loss_monitor_hook(out);
  for (const double loss : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    const std::string text = error_text<Failure>([&] { hook->after_step(step_of(2, loss)); });
    EXPECT_TRUE(says(text, "epoch: 1 step: 3", "Invalid loss, terminating training")) << text;
  }
  EXPECT_TRUE(says(error_text<ConfigError>([&] { loss_monitor_hook(out, 0); }), "every 0 steps"));
}

TEST(ThroughputHook, excludes_the_first_step) {
  const std::string text = written_by(throughput_hook, [](Hook& hook) {
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      hook.before_epoch({.epoch = epoch});
      StepReport report = step_of(0, 1);
      report.targets = 320;
      report.seconds = epoch == 0 ? 99 : 0.5;
      hook.after_step(report);
      report.seconds = 0.5;
      hook.after_step(report);
      hook.after_epoch({.epoch = epoch});
    }
  });
  EXPECT_EQ(text,
            "epoch: 0, 32 samples in 0.5 s: 64 samples/s, 640 tokens/s\n"
            "epoch: 1, 64 samples in 1 s: 64 samples/s, 640 tokens/s\n");
}

TEST(TimerHook, last_and_mean_of_steps_and_epochs) {
  TimerHook timer;
  EXPECT_EQ(timer.table(), "");
  for (const double seconds : {1.0, 3.0}) {
    timer.after_step({.seconds = seconds});
    timer.after_test_step({.seconds = seconds / 4});
  }
  timer.after_epoch({.seconds = 5});
  timer.after_test({.seconds = 2});
  EXPECT_EQ(timer.table(),
            "Train-step: last 3 s, mean 2 s, 2 times\n"
            "Train-epoch: last 5 s, mean 5 s, 1 times\n"
            "Test-step: last 0.75 s, mean 0.5 s, 2 times\n"
            "Test-epoch: last 2 s, mean 2 s, 1 times\n");
}

TEST(EarlyStopHook, refuses_invalid_options) {
  EXPECT_TRUE(says(error_text<ConfigError>([] { EarlyStopHook({.patience = 0}); }), "after 0 tests"));
  EXPECT_TRUE(says(error_text<ConfigError>([] { EarlyStopHook({.least_progress = -1}); }), "least progress of -1"));
}

}  // namespace
}  // namespace penstock::test::hooks_test
