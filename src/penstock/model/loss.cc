#include "penstock/model/loss.h"

#include <utility>

#include <torch/nn/functional/loss.h>

#include "penstock/base/error.h"
#include "penstock/model/value.h"

namespace penstock {
namespace {

constexpr std::int64_t ignored_target = -100;

torch::Tensor sum_of_cross_entropy(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::nn::functional::cross_entropy(
      output, target,
      torch::nn::functional::CrossEntropyFuncOptions().ignore_index(ignored_target).reduction(torch::kSum));
}

/// The result of `sum` for class numbers `target`. Says what is wrong with them where torch does not.
template <class Sum>
torch::Tensor of_classes(const std::string& loss, std::int64_t classes, const torch::Tensor& target, Sum sum) {
  require<ConfigError>(target.scalar_type() == torch::kInt64 || target.scalar_type() == torch::kUInt8, loss,
                       " takes targets of type int64, class numbers, and these are ", target.dtype().name(),
                       " of shape ", target.sizes(), ": convert them, target.to(torch::kInt64)");
  try {
    return sum();
  } catch (const c10::Error&) {
    const std::string wrong = number_outside(target.masked_fill(target.eq(ignored_target), 0), classes);
    require<ConfigError>(wrong.empty(), loss, ": the target ", wrong, " is not one of the output's ", classes,
                         " classes: pass 0 to ", classes - 1, ", or ", ignored_target,
                         " for elements that do not count");
    throw;
  }
}

double counted_targets(const torch::Tensor& target) {
  return static_cast<double>(target.ne(ignored_target).sum().item<std::int64_t>());
}

}  // namespace

const Loss cross_entropy{"cross_entropy",
                         [](const torch::Tensor& output, const torch::Tensor& target) {
                           return of_classes("cross_entropy", output.dim() > 1 ? output.size(1) : 0, target,
                                             [&] { return sum_of_cross_entropy(output, target); });
                         },
                         counted_targets};

const Loss next_token_loss{
    "next_token_loss",
    [](const torch::Tensor& output, const torch::Tensor& target) {
      require<ConfigError>(output.dim() == 3 && target.dim() == 2 && output.size(0) == target.size(0) &&
                               output.size(1) == target.size(1),
                           "next_token_loss compares logits of ", output.sizes(), " with targets of ", target.sizes(),
                           ": pass [n, T, V] and [n, T]");
      return of_classes("next_token_loss", output.size(2), target,
                        [&] { return sum_of_cross_entropy(output.flatten(0, 1), target.flatten()); });
    },
    counted_targets, nullptr, 2};

const Loss squared_error{"squared_error",
                         [](const torch::Tensor& output, const torch::Tensor& target) {
                           // Different shapes would be broadcast: [n] and [n, 1] give [n, n].
                           require<ConfigError>(output.sizes() == target.sizes(),
                                                "squared_error compares an output of ", output.sizes(),
                                                " with a target of ", target.sizes(), ": pass tensors of one shape");
                           return (output - target).square().sum();
                         },
                         [](const torch::Tensor& target) { return static_cast<double>(target.numel()); }};

std::string number_outside(const torch::Tensor& numbers, std::int64_t limit) {
  const torch::Tensor outside = numbers.lt(0).logical_or(numbers.ge(limit)).nonzero();
  if (outside.size(0) == 0) return "";
  const torch::Tensor place = outside[0].to(torch::kCPU);
  torch::Tensor number = numbers;
  std::vector<std::int64_t> indices(place.const_data_ptr<std::int64_t>(),
                                    place.const_data_ptr<std::int64_t>() + place.numel());
  for (const std::int64_t index : indices) number = number[index];
  return say(number.item<std::int64_t>(), " at ", at::IntArrayRef(indices));
}

Loss complete(Loss loss) {
  require<ConfigError>(loss.sum || loss.sum_of_all, "the loss '", loss.name,
                       "' has no function: pass Loss::sum, the sum of the samples' losses, or make the loss with "
                       "mean_loss(name, function)");
  return loss;
}

torch::Tensor require_scalar(const std::string& name, torch::Tensor value) {
  require<ConfigError>(value.defined(), "the loss '", name, "' returned an undefined tensor: return a scalar");
  require<ConfigError>(value.dim() == 0, "the loss '", name, "' returned a tensor of shape ", value.sizes(),
                       ", but a scalar is expected: return the sum of the samples' losses, loss.sum()");
  return value;
}

Loss mean_loss(const std::string& name, BatchFunction<torch::Tensor> mean, TargetFunction weight) {
  require<ConfigError>(static_cast<bool>(mean), "mean_loss '", name, "' has no function: pass one that ",
                       "returns the mean");
  const bool needs_target = mean.targets() == TargetUse::first || weight.targets() == TargetUse::first;
  Loss loss;
  loss.name = name;
  loss.sum = [name, needs_target, mean = std::move(mean), weight](const Tensors& outputs, const Tensors& targets) {
    require<ConfigError>(!needs_target || !targets.empty(), "the loss '", name, "' takes a target, but the batch ",
                         "has none: pass targets");
    const double count = weight ? weight(targets) : static_cast<double>(outputs.front().size(0));
    if (count == 0) return (outputs.front() * 0).sum();  // the mean of no elements is NaN
    return require_scalar(name, mean(outputs, targets)) * count;
  };
  loss.weight = std::move(weight);
  return loss;
}

}  // namespace penstock
