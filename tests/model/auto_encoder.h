// A network and a loss without targets.
#pragma once

#include <torch/torch.h>

#include "penstock/model/model.h"

namespace penstock::test {

/// Returns its input and the reconstruction, for a loss without targets.
struct AutoEncoder : Cell {
  Layer encode = add("encode", [] { return torch::nn::Linear(6, 3); });
  Layer decode = add("decode", [] { return torch::nn::Linear(3, 6); });
  Values forward_many(Values x) override { return {decode(tanh(encode(x[0]))), x[0]}; }
};

inline const Loss reconstruction{"reconstruction",
                                 [](const Tensors& outputs) { return (outputs[0] - outputs[1]).square().sum(); }};

}  // namespace penstock::test
