// Tests with text that contains arbitrary bytes.
#include "penstock/base/text.h"

#include <gtest/gtest.h>

namespace penstock::utf8_test {
namespace {

TEST(Utf8, prefix_ends_at_the_first_invalid_byte) {
  EXPECT_EQ(utf8_prefix(""), 0U);
  EXPECT_EQ(utf8_prefix("plain \x7f\n"), 8U);
  EXPECT_EQ(utf8_prefix("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), 9U) << "two, three and four bytes";
  for (const char* bad : {"\x80", "\xff", "\xc3", "\xc3(", "\xc0\xaf", "\xc1\xbf", "\xe0\x80\xaf", "\xe2\x82",
                          "\xed\xa0\x80", "\xf0\x80\x80\xaf", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80"})
    EXPECT_EQ(utf8_prefix(std::string("ab") + bad), 2U) << printable(bad);
}

TEST(Utf8, plain_text_has_no_control_characters) {
  EXPECT_TRUE(
      is_plain_text("layer 1, gr\xc3\xb6\xc3\x9f"
                    "e"));
  for (const char* text : {"a\nb", "a\tb", "\x7f", "\x1b[31m", "\xff"})
    EXPECT_FALSE(is_plain_text(text)) << printable(text);
  EXPECT_FALSE(is_plain_text(std::string_view("a\0b", 3)));
}

TEST(Utf8, control_characters_are_escaped) {
  EXPECT_EQ(printable("a\nb\xff\xc3\xa9\x1b"), "a\\x0ab\\xff\xc3\xa9\\x1b");
}

}  // namespace
}  // namespace penstock::utf8_test
