#include "penstock/transport/processes/message_formats.h"

#include <gtest/gtest.h>

#include <string>

#include "penstock/base/error.h"

namespace penstock::message_formats_test {
using namespace processes;
namespace {

TEST(MessageFormats, are_numbered_in_the_order_in_which_they_are_sent) {
  SentFormats sent;
  EXPECT_EQ(sent.number_of("a"), 0);
  const auto first = sent.take_new();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->number, 0);
  EXPECT_EQ(first->format, "a");
  EXPECT_EQ(sent.number_of("b"), 1);
  EXPECT_EQ(sent.take_new().value().format, "b");
  EXPECT_EQ(sent.number_of("a"), 0);
  EXPECT_FALSE(sent.take_new());
  EXPECT_EQ(sent.descriptions(), 2U);
}

TEST(MessageFormats, are_known_by_the_numbers_of_their_sender) {
  ReceivedFormats received;
  received.add(0, "a");
  EXPECT_THROW(received.add(2, "c"), TransportError);
  received.add(1, "b");
  EXPECT_EQ(received.at(1), "b");
  EXPECT_EQ(received.at(0), "a");
  EXPECT_THROW(received.at(2), TransportError);
  EXPECT_THROW(received.at(-1), TransportError);
}

TEST(MessageFormats, further_and_long_ones_have_no_number) {
  SentFormats sent;
  EXPECT_EQ(sent.number_of(std::string(SentFormats::longest_bytes + 1, 'x')), std::nullopt);
  EXPECT_EQ(sent.number_of(std::string(SentFormats::longest_bytes, 'x')), 0);
  for (std::size_t i = 1; i < SentFormats::most; ++i) {
    EXPECT_TRUE(sent.number_of(std::to_string(i)));
    EXPECT_TRUE(sent.take_new());
  }
  EXPECT_EQ(sent.number_of("another"), std::nullopt);
  EXPECT_FALSE(sent.take_new());
  EXPECT_EQ(sent.number_of("7"), 7);
  EXPECT_EQ(sent.descriptions(), SentFormats::most + 2);
}

TEST(MessageFormats, recur_for_the_messages_of_steps) {
  EXPECT_TRUE(has_recurring_formats({.traffic = Traffic::forward}));
  EXPECT_TRUE(has_recurring_formats({.traffic = Traffic::reduce}));
  EXPECT_TRUE(has_recurring_formats(control_tag(0, Topic::announcement, 5)));
  EXPECT_FALSE(has_recurring_formats(control_tag(0, Topic::settings)));
  EXPECT_FALSE(has_recurring_formats({.traffic = Traffic::background}));
}

}  // namespace
}  // namespace penstock::message_formats_test
