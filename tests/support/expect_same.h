// Comparisons of two trainings, bit by bit and up to rounding.
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <string>

#include "tests/support/trained.h"

namespace penstock::test {

inline void expect_same(const StateDict& expected, const StateDict& got, const std::string& what = "") {
  EXPECT_EQ(differing(expected, got), "") << what;
}

inline void expect_same(const Trained& expected, const Trained& got, const std::string& what = "") {
  EXPECT_EQ(expected.losses, got.losses) << what;
  expect_same(expected.state, got.state, what);
}

/// Bounds the norm of each tensor's difference by `relative` times (`smallest` + the norm of the expected tensor);
/// `smallest` is for tensors that start at zero.
inline void expect_close(const StateDict& expected, const StateDict& got, double relative = 1e-5,
                         double smallest = 1e-3) {
  ASSERT_EQ(expected.size(), got.size());
  for (const auto& item : expected) {
    const torch::Tensor wanted = item->to(torch::kFloat64), other = got[item.key()].to(torch::kFloat64);
    EXPECT_LE((wanted - other).norm().item<double>(), relative * (smallest + wanted.norm().item<double>()))
        << item.key();
  }
}

inline void expect_close(const Trained& expected, const Trained& got, double relative = 1e-5, double smallest = 1e-3) {
  ASSERT_EQ(expected.losses.size(), got.losses.size());
  for (std::size_t i = 0; i < expected.losses.size(); ++i)
    EXPECT_NEAR(expected.losses[i], got.losses[i], relative * (1 + std::abs(expected.losses[i])));
  expect_close(expected.state, got.state, relative, smallest);
}

}  // namespace penstock::test
