// What the ready hooks write, to the letter.
#include "penstock/train/hooks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace penstock::test {
namespace {

StepReport step_of(std::int64_t step, double loss) {
  return {.epoch = 0, .step = step, .steps_in_epoch = 60, .samples = 32, .loss = loss, .seconds = 0.5};
}

const EvaluationReport evaluation{.epoch = 1, .samples = 10000, .loss = 0.2912345678, .accuracy = 0.91834};

/// What `hook` writes while `use` runs.
template <class Use>
std::string written(const ConsoleOptions& options, Use use) {
  std::ostringstream out;
  const auto hook = console_hook(out, options);
  use(*hook);
  return out.str();
}

TEST(ConsoleHook, a_line_every_ten_steps_from_the_first) {
  const std::string text = written({}, [](Hook& hook) {
    for (std::int64_t step = 0; step <= 20; ++step) hook.on_step(step_of(step, 2.3));
    hook.on_end();
  });
  EXPECT_EQ(text,
            "epoch: 0 step: 0, loss is 2.3\n"
            "epoch: 0 step: 10, loss is 2.3\n"
            "epoch: 0 step: 20, loss is 2.3\n");
}

TEST(ConsoleHook, nine_digits) {
  const auto line = [](double loss) {
    return written({.log_every = 1}, [&](Hook& hook) { hook.on_step(step_of(3, loss)); });
  };
  EXPECT_EQ(line(2.27094173123), "epoch: 0 step: 3, loss is 2.27094173\n");
  EXPECT_EQ(line(0.1 + 0.2), "epoch: 0 step: 3, loss is 0.3\n");
  EXPECT_EQ(line(1.5e-7), "epoch: 0 step: 3, loss is 1.5e-07\n");
  EXPECT_EQ(line(std::numeric_limits<double>::infinity()), "epoch: 0 step: 3, loss is inf\n");
}

TEST(ConsoleHook, log_every) {
  const auto lines = [](std::int64_t every) {
    const std::string text = written({.log_every = every}, [](Hook& hook) {
      for (std::int64_t step = 0; step < 12; ++step) hook.on_step(step_of(step, 1));
    });
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(lines(1), 12);
  EXPECT_EQ(lines(5), 3);
  EXPECT_EQ(lines(100), 1);
  EXPECT_EQ(lines(0), 0);
}

TEST(ConsoleHook, evaluations_are_always_told) {
  EXPECT_EQ(written({.log_every = 0}, [](Hook& hook) { hook.on_evaluation(evaluation); }),
            "epoch: 1 test: loss 0.291235, accuracy 0.9183\n");
}

TEST(ConsoleHook, no_control_characters_where_there_is_no_terminal) {
  const std::string text = written({.log_every = 1}, [](Hook& hook) {
    for (std::int64_t step = 0; step < 60; ++step) hook.on_step(step_of(step, 1));
    hook.on_evaluation(evaluation);
    hook.on_end();
  });
  EXPECT_EQ(text.find_first_of("\r\x1b"), std::string::npos);
  EXPECT_EQ(text.find('['), std::string::npos);
}

const std::string clear_line = "\r\x1b[K";

TEST(ConsoleHook, a_bar_below_the_lines_on_a_terminal) {
  const std::string text = written({.is_terminal = true}, [](Hook& hook) {
    hook.on_step(step_of(0, 1));
    hook.on_evaluation(evaluation);
  });
  EXPECT_EQ(text, "epoch: 0 step: 0, loss is 1\n" + clear_line + "[..............................] 1/60" + clear_line +
                      "epoch: 1 test: loss 0.291235, accuracy 0.9183\n");
}

TEST(ConsoleHook, the_bar_is_gone_at_the_end) {
  const std::string text = written({.log_every = 0, .is_terminal = true}, [](Hook& hook) {
    hook.on_step({.step = 0, .steps_in_epoch = 3, .samples = 8, .loss = 1, .seconds = 9});
    hook.on_end();
    hook.on_end();
  });
  EXPECT_EQ(text, clear_line + "[##########....................] 1/3" + clear_line);
}

TEST(ConsoleHook, the_rate_leaves_out_the_first_step) {
  const std::string text = written({.log_every = 0, .is_terminal = true}, [](Hook& hook) {
    hook.on_step({.step = 0, .steps_in_epoch = 2, .samples = 8, .loss = 1, .seconds = 9});
    hook.on_step({.step = 1, .steps_in_epoch = 2, .samples = 8, .loss = 1, .seconds = 0.25});
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
  hook->on_step({.epoch = 2, .step = 7, .steps_in_epoch = 60, .samples = 32, .loss = 0.1 + 0.2, .seconds = 0.5});
  hook->on_evaluation(evaluation);
  hook->on_end();
  ASSERT_TRUE(out.str().ends_with("\n"));
  const auto lines = json_lines(out.str());
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], (nlohmann::json{{"epoch", 2}, {"step", 7}, {"loss", 0.1 + 0.2}, {"samples", 32},
                                      {"step_ms", 500.0}, {"samples_per_s", 64.0}}));
  EXPECT_EQ(lines[0].at("loss").get<double>(), 0.1 + 0.2);  // every bit
  EXPECT_EQ(lines[1], (nlohmann::json{{"epoch", 1}, {"test_loss", evaluation.loss},
                                      {"test_accuracy", evaluation.accuracy}, {"test_samples", 10000}}));
}

TEST(JsonHook, a_loss_that_is_no_number_is_null) {
  std::ostringstream out;
  json_hook(out)->on_step(step_of(0, std::nan("")));
  EXPECT_TRUE(json_lines(out.str()).at(0).at("loss").is_null());
}

}  // namespace
}  // namespace penstock::test
