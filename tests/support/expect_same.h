// Bitwise comparisons of two trainings.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/support/trained.h"

namespace penstock::test {

inline void expect_same(const NamedTensors& expected, const NamedTensors& got, const std::string& what = "") {
  EXPECT_EQ(differing(expected, got), "") << what;
}

inline void expect_same(const Trained& expected, const Trained& got, const std::string& what = "") {
  EXPECT_EQ(expected.losses, got.losses) << what;
  expect_same(expected.state, got.state, what);
}

}  // namespace penstock::test
