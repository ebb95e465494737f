#include <concepts>
#include <string>
#include <type_traits>
#include <unordered_set>

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/base/ids.h"
#include "tests/base/error_text.h"

namespace penstock::ids_error_test {
namespace {

template <class A, class B>
concept Comparable = requires(A a, B b) {
  a == b;
};

TEST(Ids, do_not_mix) {
  static_assert(Comparable<StageId, StageId>);
  static_assert(!Comparable<StageId, Rank>);
  static_assert(!Comparable<StageId, int>);
  static_assert(!std::convertible_to<int, StageId>);
  static_assert(!std::convertible_to<StageId, int>);
  static_assert(!std::constructible_from<Rank, StageId>);
}

TEST(Ids, count_and_compare) {
  constexpr StageId two(2);
  EXPECT_EQ(StageId().value(), 0);
  EXPECT_EQ(two.index(), 2U);
  EXPECT_EQ(two.next(), StageId(3));
  EXPECT_EQ(two.previous(), StageId(1));
  EXPECT_LT(two, StageId(3));
  EXPECT_GE(two, StageId(2));
  const std::unordered_set<StageId> set{StageId(1), StageId(2), StageId(1)};
  EXPECT_EQ(set.size(), 2U);
}

TEST(Errors, are_misuse_or_failure) {
  static_assert(std::derived_from<ConfigError, Misuse> && std::derived_from<ScheduleError, Misuse> &&
                std::derived_from<DataError, Misuse>);
  static_assert(std::derived_from<TransportError, Failure> && std::derived_from<RankFailure, Failure>);
  static_assert(!std::derived_from<Misuse, Failure> && !std::derived_from<Failure, Misuse>);
  static_assert(!std::derived_from<InternalError, Misuse> && !std::derived_from<InternalError, Failure>);
}

TEST(Errors, say_concatenates_its_arguments) {
  EXPECT_EQ(say("m = ", 3, ", but ", 2.5, ' ', std::string("is")), "m = 3, but 2.5 is");
}

TEST(Errors, require_throws_the_given_error) {
  EXPECT_NO_THROW(require<ScheduleError>(true, "never seen"));
  EXPECT_EQ(test::error_text<ScheduleError>([] { require<ScheduleError>(false, "p = ", 2, " and ", 3); }),
            "p = 2 and 3");
  EXPECT_THROW(require<TransportError>(false, "lost"), Failure);
}

}  // namespace
}  // namespace penstock::ids_error_test
