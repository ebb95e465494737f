// A job's results as a line of text, to compare several ways of running the job.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <torch/types.h>

#include "penstock/base/tensor.h"

namespace penstock::test {

/// FNV-1a over the bytes of all tensors.
inline std::uint64_t digest(const StateDict& state) {
  std::uint64_t hash = 14695981039346656037ull;
  for (const auto& item : state) {
    const torch::Tensor flat = item->contiguous();
    const auto* bytes = static_cast<const unsigned char*>(flat.const_data_ptr());
    for (std::size_t i = 0; i < flat.nbytes(); ++i) hash = (hash ^ bytes[i]) * 1099511628211ull;
  }
  return hash;
}

/// "name: loss loss ... digest", without rounding.
inline void print_outcome(const std::string& name, const std::vector<double>& losses, const StateDict& state) {
  std::printf("%s:", name.c_str());
  for (double loss : losses) std::printf(" %a", loss);
  std::printf(" %016llx\n", static_cast<unsigned long long>(digest(state)));
}

}  // namespace penstock::test
