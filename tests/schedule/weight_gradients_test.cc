#include "penstock/schedule/weight_gradients.h"

#include <gtest/gtest.h>

#include "penstock/schedule/generate.h"

namespace penstock::weight_gradients_test {
namespace {

TEST(WeightGradients, are_named) {
  for (const char* name : {"stream", "auto", "fused", "grouped"})
    EXPECT_STREQ(to_string(weight_gradients_named(name).value()), name);
  EXPECT_EQ(weight_gradients_named("auto"), WeightGradients::automatic);
  for (const char* name : {"", "Fused", "automatic"}) EXPECT_FALSE(weight_gradients_named(name)) << name;
}

TEST(WeightGradients, of_a_schedule) {
  for (const char* name : {"1f1b", "zb-h1", "interleaved"}) {
    const int chunks = find_generator(name).default_chunks;
    const Schedule schedule = generate(name, {.ranks = 2, .micro_batches = 4, .chunks = chunks});
    EXPECT_EQ(weight_gradients_of(schedule), WeightGradients::stream) << name;
    EXPECT_EQ(weight_gradients_of(fuse_w(schedule)), WeightGradients::fused) << name;
    EXPECT_EQ(weight_gradients_of(fuse_w(schedule, {.group = 3})), WeightGradients::grouped) << name;
    EXPECT_EQ(weight_gradients_of(fuse_w(schedule, {.group = 1})), WeightGradients::stream) << name;
  }
  EXPECT_EQ(weight_gradients_of(generate("forward-only", {.ranks = 2, .micro_batches = 4})), WeightGradients::stream);
}

}  // namespace
}  // namespace penstock::weight_gradients_test
