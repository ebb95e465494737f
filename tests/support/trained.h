// What tests compare of two trainings.
#pragma once

#include <string>
#include <vector>

#include "penstock/base/tensor.h"

namespace penstock::test {

struct Trained {
  std::vector<double> losses;
  StateDict state;  // parameters and buffers, on the main process
};

/// The names of the tensors that differ in a bit, and whether the two have other names or another order.
inline std::string differing(const StateDict& one, const StateDict& other) {
  std::string names = one.keys() == other.keys() ? "" : "names or order ";
  for (const auto& item : one)
    if (!other.contains(item.key()) || !item->equal(other[item.key()])) names += item.key() + " ";
  return names;
}

/// What differs between two trainings; empty where they are equal bit by bit.
inline std::string difference(const Trained& expected, const Trained& got) {
  return (expected.losses == got.losses ? "" : "losses ") + differing(expected.state, got.state);
}

}  // namespace penstock::test
