// Bitwise comparisons of two trainings.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/support/trained.h"

namespace penstock::test {

inline void expect_same(const std::map<std::string, torch::Tensor>& expected,
                        const std::map<std::string, torch::Tensor>& got, const std::string& what = "") {
  ASSERT_EQ(expected.size(), got.size()) << what;
  for (const auto& [name, value] : expected) EXPECT_TRUE(torch::equal(value, got.at(name))) << what << ": " << name;
}

inline void expect_same(const Trained& expected, const Trained& got, const std::string& what = "") {
  EXPECT_EQ(expected.losses, got.losses) << what;
  expect_same(expected.state, got.state, what);
}

}  // namespace penstock::test
