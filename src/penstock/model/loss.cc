#include "penstock/model/loss.h"

#include <torch/nn/functional/loss.h>

namespace penstock {
namespace {

constexpr std::int64_t ignored_target = -100;

}  // namespace

const Loss cross_entropy{
    "cross_entropy",
    [](const torch::Tensor& output, const torch::Tensor& target) {
      return torch::nn::functional::cross_entropy(
          output, target,
          torch::nn::functional::CrossEntropyFuncOptions().ignore_index(ignored_target).reduction(torch::kSum));
    },
    [](const torch::Tensor& target) {
      return static_cast<double>(target.ne(ignored_target).sum().item<std::int64_t>());
    }};

const Loss squared_error{"squared_error",
                         [](const torch::Tensor& output, const torch::Tensor& target) {
                           return (output - target).square().sum();
                         },
                         [](const torch::Tensor& target) { return static_cast<double>(target.numel()); }};

}  // namespace penstock
