#include "penstock/base/cores.h"

#include <gtest/gtest.h>

namespace penstock::cores_test {
namespace {

TEST(BoundCores, are_named_with_the_flags_that_help) {
  const auto warning = bound_cores_warning({.threads = 4, .usable = 1, .of_host = 64});
  ASSERT_TRUE(warning);
  for (const char* part : {"4 threads", "1 of the host's 64 cores", "--bind-to none", "PE=4", "--cpus-per-task=4"})
    EXPECT_NE(warning->find(part), std::string::npos) << *warning;
  EXPECT_TRUE(bound_cores_warning({.threads = 4, .usable = 2, .of_host = 3}));
}

TEST(BoundCores, are_no_matter_if_they_suffice_or_are_all) {
  EXPECT_FALSE(bound_cores_warning({.threads = 4, .usable = 4, .of_host = 64}));
  EXPECT_FALSE(bound_cores_warning({.threads = 1, .usable = 1, .of_host = 64}));
  EXPECT_FALSE(bound_cores_warning({.threads = 8, .usable = 2, .of_host = 2}));
}

TEST(UsableCores, are_those_of_the_affinity) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(usable_cores(), CPU_COUNT(&before));
  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(usable_cores(), 1);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace penstock::cores_test
