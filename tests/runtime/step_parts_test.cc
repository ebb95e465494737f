// The order of a step's parts, and the shares of accumulated gradients.
#include "penstock/pipeline/jobs.h"

#include <memory>

#include <gtest/gtest.h>

#include "penstock/base/error.h"

namespace penstock::test::step_parts_test {
namespace {

std::shared_ptr<StepJob> job() {
  return std::make_shared<StepJob>(StepJob{.layout = BatchLayout({.samples = 4, .replicas = 1, .micro_batches = 2})});
}

TEST(StepParts, PartsComeInTheirOrder) {
  StepParts parts;
  EXPECT_THROW(parts.require_later(StepPart::reduce), ConfigError);
  EXPECT_THROW(parts.require_later(StepPart::update), ConfigError);
  parts.require_whole_steps("update_every");

  const auto begun = job();
  parts.begin(begun, 0);
  EXPECT_EQ(parts.begun(), begun);
  EXPECT_TRUE(parts.needs_reduction());
  EXPECT_THROW(parts.require_whole_steps("update_every"), ConfigError);
  parts.require_forward_backward();
  parts.require_later(StepPart::reduce);
  parts.require_later(StepPart::update);

  parts.end(StepPart::reduce);
  EXPECT_FALSE(parts.needs_reduction());
  EXPECT_TRUE(parts.has_gradients());
  EXPECT_THROW(parts.require_forward_backward(), ConfigError);
  EXPECT_THROW(parts.require_later(StepPart::reduce), ConfigError);
  parts.require_later(StepPart::update);

  parts.end(StepPart::update);
  EXPECT_FALSE(parts.has_gradients());
  EXPECT_EQ(parts.begun(), nullptr);
}

TEST(StepParts, SharesOfAMeanFollowTheWeights) {
  StepParts parts;
  const auto first = job(), second = job(), third = job();
  parts.begin(first, 6);
  parts.begin(second, 2);
  parts.begin(third, 8);
  EXPECT_FALSE(first->shares.continues);
  EXPECT_EQ(first->shares.newest, 1);
  EXPECT_TRUE(second->shares.continues);
  EXPECT_EQ(second->shares.earlier, 0.75);
  EXPECT_EQ(second->shares.newest, 0.25);
  EXPECT_EQ(third->shares.earlier, 0.5);
  EXPECT_EQ(third->shares.newest, 0.5);
}

TEST(StepParts, SharesOfASumAreOne) {
  StepParts parts;
  const auto first = job(), second = job();
  parts.begin(first, 0);
  parts.begin(second, 0);
  EXPECT_TRUE(second->shares.continues);
  EXPECT_EQ(second->shares.earlier, 1);
  EXPECT_EQ(second->shares.newest, 1);
}

TEST(StepParts, AnUpdateIsDueAfterItsCalls) {
  StepParts parts(2);
  EXPECT_TRUE(parts.accumulates());
  parts.begin(job(), 1);
  EXPECT_FALSE(parts.is_update_due());
  parts.begin(job(), 1);
  EXPECT_TRUE(parts.is_update_due());
  parts.end(StepPart::reduce);
  parts.end(StepPart::update);
  EXPECT_FALSE(parts.is_update_due());
}

}  // namespace
}  // namespace penstock::test::step_parts_test
