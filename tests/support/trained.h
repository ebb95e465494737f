// What tests compare of two trainings.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "penstock/base/tensor.h"

namespace penstock::test {

using NamedTensors = std::map<std::string, torch::Tensor>;

struct Trained {
  std::vector<double> losses;
  NamedTensors state;  // parameters and buffers, on the main process
};

/// The names of the tensors that differ in a bit.
inline std::string differing(const NamedTensors& one, const NamedTensors& other) {
  std::string names = one.size() == other.size() ? "" : "sizes ";
  for (const auto& [name, value] : one)
    if (!other.contains(name) || !value.equal(other.at(name))) names += name + " ";
  return names;
}

/// What differs between two trainings; empty where they are equal bit by bit.
inline std::string difference(const Trained& expected, const Trained& got) {
  return (expected.losses == got.losses ? "" : "losses ") + differing(expected.state, got.state);
}

}  // namespace penstock::test
