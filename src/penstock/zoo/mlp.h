// The multi-layer perceptron of the tutorials.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "penstock/model/model.h"

namespace penstock {

struct MlpOptions {
  std::int64_t inputs = 784;
  std::vector<std::int64_t> hidden = {512, 512};
  std::int64_t classes = 10;
};

/// Flattens [n, ...] to [n, inputs]; a Linear and a ReLU per hidden width ("layer1", "relu1", ...); a last Linear.
/// Logits [n, classes] come out. No layer has a stage: the partitioner partitions it.
class Mlp : public Cell {
 public:
  explicit Mlp(const MlpOptions& options);
  Value forward(Value x) override;

 private:
  std::vector<Layer> layers_;
};

/// "512,512" or "1024x8" (eight layers of 1024) or both mixed: "512,1024x8". Throws ConfigError.
std::vector<std::int64_t> parse_widths(std::string_view text);

}  // namespace penstock
