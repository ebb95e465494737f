#include "penstock/cli/value_flags.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::test::time_limit_test {
namespace {

double parsed(const char* text) { return cli::parse_time_limit("--max-time", text); }

TEST(TimeLimit, has_the_meaning_that_slurm_gives_to_it) {
  EXPECT_EQ(parsed("11:30:00"), 41400);
  EXPECT_EQ(parsed("100:00:07"), 360007);
  EXPECT_EQ(parsed("90:00"), 5400);  // minutes and seconds
  EXPECT_EQ(parsed("0:07"), 7);
  EXPECT_EQ(parsed("1-12"), 86400 + 12 * 3600);
  EXPECT_EQ(parsed("1-12:30"), 86400 + 12 * 3600 + 30 * 60);
  EXPECT_EQ(parsed("1-11:30:00"), 127800);
  EXPECT_EQ(parsed("0-00:00:01"), 1);
}

TEST(TimeLimit, is_no_plain_number) {
  for (const char* text : {"7", "0", "600", "999999"}) {
    const std::string error = error_text<ConfigError>([&] { parsed(text); });
    EXPECT_TRUE(says(error, "--max-time ", text, ": a plain number is ambiguous",
                     "pass hours, minutes and seconds as 11:30:00, minutes and seconds as 90:00, or days and hours as "
                     "1-11, 1-11:30 or 1-11:30:00"))
        << error;
  }
}

TEST(TimeLimit, is_above_0) {
  for (const char* text : {"0:00", "0:00:00", "0-0", "0-0:00:00"})
    EXPECT_TRUE(says(error_text<ConfigError>([&] { parsed(text); }), "--max-time ", text, ": pass a time above 0"));
}

TEST(TimeLimit, other_texts_are_refused) {
  const std::vector<const char*> misread = {"7-", "1-", "-1", "1-24", "1--1:00", "1:02-03", "1-12:60", "41666-0"};
  const std::vector<const char*> too_many = {"1:02:03:04", "1:02:03:04:05", "1-1:02:03:04"};
  const std::vector<const char*> out_of_range = {"1:60", "0:99:99", "0:00:60", "1000000", "1000000:00:00"};
  std::vector<const char*> texts = {"", "soon", "1:", ":01", "1.5", "1:00:00 ", "+1:00", "1:2", "1:002", "1e3:00"};
  for (const auto& others : {misread, too_many, out_of_range}) texts.insert(texts.end(), others.begin(), others.end());
  for (const char* text : texts) {
    const std::string error = error_text<ConfigError>([&] { parsed(text); });
    EXPECT_TRUE(says(error, "--max-time", "pass hours, minutes and seconds as 11:30:00")) << text;
    EXPECT_FALSE(says(error, "ambiguous")) << text;
  }
}

TEST(TimeLimit, text_is_parsed_again) {
  const double longest = parsed("999999:59:59"), longest_days = parsed("41665-23:59:59");
  for (const double seconds : {1.0, 59.0, 60.0, 3599.0, 3600.0, 90061.0, 1e6, longest, longest_days})
    EXPECT_EQ(parsed(cli::time_limit_text(seconds).c_str()), seconds);
  EXPECT_EQ(cli::time_limit_text(3599.2), "1:00:00");
  EXPECT_EQ(cli::time_limit_text(-5), "0:00:01");
}

}  // namespace
}  // namespace penstock::test::time_limit_test
