#include "penstock/base/text.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace penstock::public_text_test {
namespace {

TEST(PublicText, passwords_of_urls_are_hidden) {
  const auto shown = [](std::string_view text) { return public_text(text, {}); };
  EXPECT_EQ(shown("no MNIST in 'https://u:secret@host/data'"), "no MNIST in 'https://***@host/data'");
  EXPECT_EQ(shown("s3://token@bucket and ftp://a:b@c:d@e/f@g"), "s3://***@bucket and ftp://***@e/f@g");
  for (const char* text : {"https://host/a@b", "a@b", "://", "x://", "mail u@h, see http://h?q=u@h"})
    EXPECT_EQ(shown(text), text);
}

TEST(PublicText, folders_of_the_environment_are_named) {
  const std::vector<NamedFolder> folders{{"/home/ada/data", "$PENSTOCK_DATA"}, {"/home/ada", "~"}};
  const auto shown = [&](std::string_view text) { return public_text(text, folders); };
  EXPECT_EQ(shown("'/home/ada/data/mnist' and /home/ada/x"), "'$PENSTOCK_DATA/mnist' and ~/x");
  EXPECT_EQ(shown("/home/ada"), "~");
  EXPECT_EQ(shown("--x=/home/ada/y /home/ada/database"), "--x=~/y ~/database");
  for (const char* text : {"/home/adam", "/mnt/home/ada/x", "/home/ada.old/x", "ada"}) EXPECT_EQ(shown(text), text);
}

TEST(PublicText, controls_are_visible_and_lines_stay) {
  EXPECT_EQ(public_text("a\x1b[31m\xff\tb\nü\n", {}), "a\\x1b[31m\\xff\\x09b\nü\n");
  EXPECT_EQ(public_text("", {}), "");
}

TEST(PublicText, knows_the_environment) {
  const char* home = std::getenv("HOME");
  const std::string before = home ? home : "";
  ::setenv("HOME", "/some/folder/", 1);
  EXPECT_EQ(public_text("/some/folder/x"), "~/x");
  ::setenv("HOME", "/", 1);
  EXPECT_EQ(public_text("/some/folder/x"), "/some/folder/x");
  home ? ::setenv("HOME", before.c_str(), 1) : ::unsetenv("HOME");
}

}  // namespace
}  // namespace penstock::public_text_test
