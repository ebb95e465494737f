#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/transport/processes/early_posts.h"

namespace penstock::test::early_posts_test {
using namespace processes;
namespace {

std::string text(const EarlyPosts::Step& step) {
  return say(step.voided, " void, ", step.is_early ? "early" : "new", ", ", step.posted, " x ", step.capacity);
}

TEST(EarlyPosts, are_those_of_the_drawing_in_the_header) {
  EarlyPosts posts;
  std::vector<std::string> steps;
  for (const std::size_t bytes : {40, 40, 30, 70, 70, 90'000'000, 40}) steps.push_back(text(posts.next(bytes)));
  EXPECT_EQ(steps, (std::vector<std::string>{"0 void, new, 2 x 40", "0 void, early, 1 x 40", "0 void, early, 1 x 40",
                                             "2 void, new, 2 x 70", "0 void, early, 1 x 70", "2 void, new, 0 x 0",
                                             "0 void, new, 2 x 40"}));
}

TEST(EarlyPosts, take_every_buffer_in_order_and_are_long_enough) {
  // The two ends as they use it: a queue of posted receives, and what the sender sends into them.
  std::mt19937 random(1);
  for (int turn = 0; turn < 200; ++turn) {
    EarlyPosts sender, receiver;
    std::deque<std::size_t> posted;  // capacities
    for (int i = 0; i < 100; ++i) {
      const std::size_t bytes = std::size_t{1} << random() % 26;
      const EarlyPosts::Step sent = sender.next(bytes), step = receiver.next(bytes);
      ASSERT_EQ(sent, step);
      if (!step.is_early) posted.push_back(bytes);
      for (int k = 0; k < step.posted; ++k) posted.push_back(step.capacity);
      for (int k = 0; k < step.voided; ++k) posted.pop_front();
      ASSERT_FALSE(posted.empty());
      ASSERT_GE(posted.front(), bytes);
      posted.pop_front();
      ASSERT_LE(posted.size(), static_cast<std::size_t>(EarlyPosts::ahead));
      for (const std::size_t capacity : posted) ASSERT_LE(capacity, EarlyPosts::longest);
    }
  }
}

}  // namespace
}  // namespace penstock::test::early_posts_test
