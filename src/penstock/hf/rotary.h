// Rotary position embeddings: queries and keys are turned by angles that grow with the position. Internal to this
// module.
#pragma once

#include <mutex>
#include <string>

#include "penstock/base/tensor.h"
#include "penstock/hf/config_file.h"

namespace penstock::hf {

struct RotaryOptions {
  torch::Tensor frequencies;  // fp32 [r / 2]: radians per position of each pair of the r values that are turned
  double scale = 1;           // of the turned values
};

struct RotaryReading {
  std::int64_t size = 0;
  double default_theta = 10000;
  const char* theta_key = "rope_theta";  // of the older form
  bool is_scaled = true;                 // whether rope_scaling of the older form applies
  std::string kind = {};                 // "full_attention"
};
/// Reads the options of the `size` values of a head that are turned: from rope_parameters, within it from `kind` if the
/// model has several, or from the older rope_scaling and rope_theta. Scalings: default, linear, llama3 and yarn; throws
/// ConfigError, which names it, for another.
RotaryOptions read_rotary(const ConfigFile& file, const RotaryReading& reading);

/// Thread-safe: the ranks of a process share it.
class Rotary {
 public:
  explicit Rotary(RotaryOptions options) : options_(std::move(options)) {}

  /// Cosines and sines, fp32 [T, r / 2] each.
  struct Turns {
    torch::Tensor cosines, sines;
  };
  /// For the positions `begin` ... `begin` + `length` - 1.
  Turns consecutive(std::int64_t begin, std::int64_t length) const;
  /// For `positions`, int64 [T].
  Turns at(const torch::Tensor& positions) const;

 private:
  /// For the positions below `end`, at least.
  Turns until(std::int64_t end) const;

  RotaryOptions options_;
  mutable std::mutex mutex_;
  mutable Turns known_;  // from position 0; grows by doubling
};

/// Turns the first r values of each head of `x` [n, T, heads, size] by `turns`, whose T may also be n * T; r / 2 apart
/// from each other are the two values of a pair. The result is contiguous and has the dtype of `x`.
torch::Tensor rotate(const torch::Tensor& x, const Rotary::Turns& turns);

}  // namespace penstock::hf
