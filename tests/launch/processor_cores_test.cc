#include "penstock/launch/processor_cores.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

namespace penstock::processor_cores_test {
namespace {

std::vector<int> processors_of(const std::vector<Core>& cores) {
  std::vector<int> all;
  for (const Core& core : cores) all.insert(all.end(), core.begin(), core.end());
  return all;
}

/// Whether `wanted` are the processors that a new process may use after bind_to().
bool is_bound_to(const CoreShare& share, const std::vector<int>& wanted) {
  const pid_t child = ::fork();
  if (child == 0) {
    bind_to(share);
    ::_exit(processors_of(usable_cores()) == wanted ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0;
}

TEST(ProcessorCores, a_rank_is_bound_to_its_share) {
  const std::vector<Core> cores = usable_cores();
  ASSERT_FALSE(cores.empty());
  const int last = static_cast<int>(cores.size()) - 1;
  EXPECT_TRUE(is_bound_to({.rank = last, .cores_of_each = 1}, cores.back()));
  EXPECT_TRUE(is_bound_to({.rank = 0, .cores_of_each = last + 1}, processors_of(cores)));
}

TEST(ProcessorCores, without_a_share_it_stays_as_it_is) {
  const std::vector<int> all = processors_of(usable_cores());
  EXPECT_TRUE(is_bound_to({.rank = 0, .cores_of_each = 0}, all));
  EXPECT_TRUE(is_bound_to({.rank = 1'000'000, .cores_of_each = 1}, all));
}

}  // namespace
}  // namespace penstock::processor_cores_test
