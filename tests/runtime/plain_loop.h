// The reference for Penstock, in LibTorch alone: a plain network, its micro-batches one after the other, one optimiser.
// Uses nothing of Penstock.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <torch/torch.h>

namespace plain {

struct Settings {
  std::int64_t micro_batches = 1;
  double learning_rate = 0.1;
  bool sum_of_means = false;  // MindSpore's reduction
};

/// 12 -> 16 -> 16 -> 16 -> 4 with ReLU, GELU and LayerNorm between.
struct Network : torch::nn::Module {
  torch::nn::Linear a{register_module("a", torch::nn::Linear(12, 16))};
  torch::nn::Linear b{register_module("b", torch::nn::Linear(16, 16))};
  torch::nn::LayerNorm norm{register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})))};
  torch::nn::Linear c{register_module("c", torch::nn::Linear(16, 16))};
  torch::nn::Linear d{register_module("d", torch::nn::Linear(16, 4))};

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(a(x.flatten(1)));
    x = torch::gelu(norm(b(x)));
    return d(torch::relu(c(x)));
  }
};

struct Outcome {
  std::vector<double> losses;
  torch::OrderedDict<std::string, torch::Tensor> parameters;
};

/// Sizes that differ by at most one, larger first.
inline std::vector<std::int64_t> sizes(std::int64_t samples, std::int64_t parts) {
  parts = std::min(samples, parts);
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < parts; ++i) all.push_back(samples / parts + (i < samples % parts ? 1 : 0));
  return all;
}

/// Trains from `initial` on `batches`, pairs of inputs and targets.
inline Outcome train(const torch::OrderedDict<std::string, torch::Tensor>& initial,
                     const std::vector<std::pair<torch::Tensor, torch::Tensor>>& batches, const Settings& settings) {
  Network network;
  {
    torch::NoGradGuard no_grad;
    for (auto& item : network.named_parameters()) item.value().copy_(initial[item.key()]);
  }
  torch::optim::SGD optimizer(network.parameters(), settings.learning_rate);
  Outcome outcome;
  for (const auto& [inputs, targets] : batches) {
    optimizer.zero_grad();
    double loss = 0;
    std::int64_t row = 0;
    for (std::int64_t size : sizes(inputs.size(0), settings.micro_batches)) {
      const torch::Tensor sum = torch::nn::functional::cross_entropy(
          network.forward(inputs.narrow(0, row, size)), targets.narrow(0, row, size),
          torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
      const torch::Tensor part = sum / static_cast<double>(settings.sum_of_means ? size : inputs.size(0));
      part.backward();
      loss += part.item<double>();
      row += size;
    }
    optimizer.step();
    outcome.losses.push_back(loss);
  }
  for (auto& item : network.named_parameters()) outcome.parameters.insert(item.key(), item.value().detach().clone());
  return outcome;
}

}  // namespace plain
