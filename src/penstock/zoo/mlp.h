// A multi-layer perceptron.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "penstock/model/model.h"

namespace penstock {

struct MlpOptions {
  std::int64_t inputs = 784;                      // numbers per sample
  std::vector<std::int64_t> hidden = {512, 512};  // widths of the hidden layers
  std::int64_t classes = 10;
  double dropout = 0;  // probability, after each ReLU
};

/// Flattens [n, ...] to [n, inputs], then runs a Linear, a ReLU and, if there is dropout, a Dropout per hidden width
/// ("layer1", "relu1", "dropout1", ...), and a last Linear. Returns logits [n, classes]. No layer is annotated with a
/// stage: use automatic partitioning.
class Mlp : public Cell {
 public:
  explicit Mlp(const MlpOptions& options);
  Value forward(Value x) override;

 private:
  std::vector<Layer> layers_;
};

/// Parses hidden widths: "512,512", "1024x8" (eight layers of 1024), or a mixture, "512,1024x8". Throws ConfigError for
/// any other text.
std::vector<std::int64_t> parse_widths(std::string_view text);

}  // namespace penstock
