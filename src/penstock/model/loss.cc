#include "penstock/model/loss.h"

#include <torch/nn/functional/loss.h>

#include "penstock/base/error.h"

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
                           // Shapes that differ would be broadcast: [n] against [n, 1] compares all with all.
                           require<ConfigError>(output.sizes() == target.sizes(),
                                                "squared_error compares an output of ",
                                                output.sizes(), " with a target of ", target.sizes(),
                                                ": give them one shape");
                           return (output - target).square().sum();
                         },
                         [](const torch::Tensor& target) { return static_cast<double>(target.numel()); }};

}  // namespace penstock
