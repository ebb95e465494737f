#include "penstock/cli/time_limit.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::test::time_limit_test {
namespace {

double parsed(const char* text) { return parse_time_limit("--max-time", text); }

TEST(TimeLimit, is_written_as_batch_systems_do) {
  EXPECT_EQ(parsed("11:30:00"), 41400);
  EXPECT_EQ(parsed("1-11:30:00"), 127800);
  EXPECT_EQ(parsed("90:00"), 5400);
  EXPECT_EQ(parsed("7"), 7);
}

TEST(TimeLimit, is_above_0) {
  for (const char* text : {"0", "0:00:00", "0-0:00:00"})
    EXPECT_TRUE(says(error_text<ConfigError>([&] { parsed(text); }), "--max-time ", text, ": give a time above 0"));
}

TEST(TimeLimit, other_texts_are_refused) {
  for (const char* text : {"", "soon", "1:", ":1", "-1", "1--1:00", "1.5", "1:00:00 ", "1000000", "1:2-3"})
    EXPECT_TRUE(says(error_text<ConfigError>([&] { parsed(text); }), "--max-time", "give hours, minutes and seconds"))
        << text;
}

TEST(TimeLimit, text_is_parsed_again) {
  for (const double seconds : {1.0, 59.0, 60.0, 3599.0, 3600.0, 90061.0, 1e6})
    EXPECT_EQ(parsed(time_limit_text(seconds).c_str()), seconds);
  EXPECT_EQ(time_limit_text(3599.2), "1:00:00");
  EXPECT_EQ(time_limit_text(-5), "0:00:01");
}

}  // namespace
}  // namespace penstock::test::time_limit_test
