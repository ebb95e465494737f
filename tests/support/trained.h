// What tests compare of two trainings.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "penstock/base/tensor.h"

namespace penstock::test {

struct Trained {
  std::vector<double> losses;
  std::map<std::string, torch::Tensor> state;  // parameters and buffers, on the main process
};

}  // namespace penstock::test
