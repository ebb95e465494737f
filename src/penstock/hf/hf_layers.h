// The layers of language models that torch does not have, and layers that are built without random numbers that would
// be overwritten. Internal to this module.
#pragma once

#include <string>

#include "penstock/hf/architectures.h"
#include "penstock/model/layer.h"

namespace penstock::hf {

/// y = x w^T + b: a torch::nn::Linear. A random weight is normal with the deviation of `initial`, a bias is 0.
struct LinearSizes {
  std::int64_t in = 1, out = 1;
  bool has_bias = true;
};
LayerFactory linear(const LinearSizes& sizes, const Initial& initial);
/// A layers::TransposedLinear, as GPT-2 has; a random weight as that of linear().
LayerFactory conv1d(const LinearSizes& sizes, const Initial& initial);
/// A torch::nn::Embedding of `config.vocabulary` or other rows, whose padding token's row is not trained by look-ups.
struct EmbeddingSizes {
  std::int64_t rows = 1, width = 1;
  std::optional<std::int64_t> padding = {};
};
LayerFactory embedding(const EmbeddingSizes& sizes, const Initial& initial);
/// A torch::nn::LayerNorm over the last dimension.
LayerFactory layer_norm(std::int64_t width, double epsilon);

/// y = x / sqrt(mean of x^2 + epsilon) * (weight + offset), over the last dimension, computed in fp32 and returned in
/// the dtype of x. If the last dimension is a multiple of `width`, each of its parts is normalised on its own. A random
/// weight is 1 - offset.
struct RmsNormOptions {
  std::int64_t width = 1;
  double epsilon = 1e-6;
  double offset = 0;
};
LayerFactory rms_norm(const RmsNormOptions& options);

enum class Activation { silu, gelu, gelu_tanh, relu };
/// By Hugging Face's name. Throws ConfigError, which names `place` and the known ones, for another.
Activation activation_named(const std::string& name, const std::string& place);
Value activate(const Value& x, Activation activation);
/// activate(gate) * up, as one node that keeps only its inputs.
Value gated(const Value& gate, const Value& up, Activation activation);

}  // namespace penstock::hf
