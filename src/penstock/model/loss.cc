#include "penstock/model/loss.h"

#include <torch/nn/functional/loss.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

constexpr std::int64_t ignored_target = -100;

torch::Tensor sum_of_cross_entropy(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::nn::functional::cross_entropy(
      output, target,
      torch::nn::functional::CrossEntropyFuncOptions().ignore_index(ignored_target).reduction(torch::kSum));
}

double counted_targets(const torch::Tensor& target) {
  return static_cast<double>(target.ne(ignored_target).sum().item<std::int64_t>());
}

}  // namespace

const Loss cross_entropy{"cross_entropy", sum_of_cross_entropy, counted_targets};

const Loss next_token_loss{"next_token_loss",
                           [](const torch::Tensor& output, const torch::Tensor& target) {
                             require<ConfigError>(output.dim() == 3 && target.dim() == 2 &&
                                                      output.size(0) == target.size(0) &&
                                                      output.size(1) == target.size(1),
                                                  "next_token_loss compares logits of ", output.sizes(),
                                                  " with targets of ", target.sizes(), ": give [n, T, V] and [n, T]");
                             return sum_of_cross_entropy(output.flatten(0, 1), target.flatten());
                           },
                           counted_targets, nullptr, 2};

const Loss squared_error{"squared_error",
                         [](const torch::Tensor& output, const torch::Tensor& target) {
                           // Different shapes would be broadcast: [n] and [n, 1] give [n, n].
                           require<ConfigError>(output.sizes() == target.sizes(),
                                                "squared_error compares an output of ", output.sizes(),
                                                " with a target of ", target.sizes(), ": give them one shape");
                           return (output - target).square().sum();
                         },
                         [](const torch::Tensor& target) { return static_cast<double>(target.numel()); }};

}  // namespace penstock
