#include "penstock/schedule/memory_limit.h"

#include <gtest/gtest.h>

#include <limits>

#include "penstock/base/error.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/validate.h"

namespace penstock::memory_limit_test {
namespace {

TEST(MemoryLimit, counts_micro_batches_of_each_ranks_chunks) {
  const Schedule uneven{"uneven", 8, {Rank(0), Rank(1), Rank(1), Rank(3)}, std::vector<Order>(4)};
  EXPECT_EQ(activation_limit(uneven, 1), (std::vector<int>{4, 8, 1, 4})) << "a rank without stages has no use for it";
  EXPECT_EQ(activation_limit(uneven, 0.6), (std::vector<int>{2, 4, 1, 2}));
  EXPECT_EQ(activation_limit(uneven, 1e300), (std::vector<int>{8, 16, 1, 8})) << "no more than there are";
  const Schedule ten = generate("1f1b", {.ranks = 10, .micro_batches = 10});
  EXPECT_EQ(activation_limit(ten, 1.1), std::vector<int>(10, 10));
  EXPECT_EQ(activation_limit(generate("1f1b", {.ranks = 10, .micro_batches = 20}), 1.1), std::vector<int>(10, 11))
      << "however 1.1 is rounded";
}

std::string error_text(std::string_view name, const ScheduleShape& shape, double limit) {
  const Schedule schedule = generate(name, shape);
  try {
    require_within_limit(schedule, limit, validate(schedule).peak_activations);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(MemoryLimit, is_positive_and_finite) {
  const Schedule any = generate("1f1b", {.ranks = 2, .micro_batches = 2});
  for (const double bad :
       {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    EXPECT_THROW(activation_limit(any, bad), ConfigError) << bad;
}

TEST(MemoryLimit, names_the_smallest_sufficient_limit) {
  EXPECT_EQ(error_text("1f1b", {.ranks = 4, .micro_batches = 8}, 1), "");
  EXPECT_EQ(error_text("1f1b", {.ranks = 4, .micro_batches = 8}, 0.6),
            "a memory limit of 0.6 (times 1F1B's 4 micro-batches) lets rank 0 hold 2 live micro-batches, but schedule "
            "'1f1b' holds 4 there: give a limit of 1 or more, or take another schedule");
  EXPECT_EQ(error_text("interleaved", {.ranks = 3, .micro_batches = 6, .chunks = 2}, 1),
            "a memory limit of 1 (times 1F1B's 3 micro-batches) lets rank 0 hold 6 live micro-batches of its chunks, "
            "but schedule 'interleaved' holds 8 there: give a limit of 1.334 or more, or take another schedule");
}

TEST(MemoryLimit, the_named_limit_is_sufficient) {
  for (const Generator& generator : generators())
    for (const int m : {1, 3, 7, 8}) {
      const ScheduleShape shape{.ranks = 3, .micro_batches = m, .chunks = generator.default_chunks};
      const std::string text = error_text(generator.name, shape, 0.01);
      const std::string ask = "give a limit of ";
      if (text.empty()) continue;  // holds one micro-batch, which every limit permits
      const double limit = std::stod(text.substr(text.find(ask) + ask.size()));
      EXPECT_EQ(error_text(generator.name, shape, limit), "") << generator.name << " m " << m;
      EXPECT_NE(error_text(generator.name, shape, limit - 0.002), "") << generator.name << " m " << m;
    }
}

}  // namespace
}  // namespace penstock::memory_limit_test
