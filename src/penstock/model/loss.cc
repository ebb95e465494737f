#include "penstock/model/loss.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <torch/autograd.h>
#include <torch/nn/functional/loss.h>

#include "penstock/base/error.h"
#include "penstock/model/value.h"

namespace penstock {
namespace {

constexpr std::int64_t ignored_target = -100;

/// The memory that the loss of some rows at a time takes, in numbers.
constexpr std::int64_t rows_together = 1 << 20;

/// What LargeCrossEntropy keeps for its backward pass.
struct Logits : torch::CustomClassHolder {
  torch::Tensor values;
  std::int64_t version = 0;  // of the tensor's changes in place
};

/// The sum of the cross-entropies of the rows of logits [n, classes], with the bits of torch's function, a few rows at a
/// time. The logits of a language model are its largest activation: only these are kept, and their gradient takes their
/// memory if nothing else does.
struct LargeCrossEntropy : torch::autograd::Function<LargeCrossEntropy> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& output,
                               const torch::Tensor& target) {
    const torch::Tensor classes = target.to(torch::kInt64);
    const torch::Tensor is_ignored = classes.eq(ignored_target);
    const torch::Tensor column = classes.masked_fill(is_ignored, 0).unsqueeze(1);
    const torch::Tensor picked = torch::empty({output.size(0), 1}, output.options());
    for_rows(output, [&](std::int64_t begin, std::int64_t count) {
      const torch::Tensor logs = output.narrow(0, begin, count).log_softmax(1);
      picked.narrow(0, begin, count).copy_(logs.gather(1, column.narrow(0, begin, count)));
    });
    auto logits = c10::make_intrusive<Logits>();
    logits->values = output.detach();
    logits->version = static_cast<std::int64_t>(output._version());
    context->saved_data["logits"] = c10::IValue::make_capsule(logits);
    context->save_for_backward({classes});
    const torch::Tensor first = torch::zeros_like(classes).masked_fill_(is_ignored, ignored_target);
    return torch::nll_loss(picked, first, {}, at::Reduction::Sum, ignored_target);
  }

  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    if (!gradients.front().defined()) return Tensors(2);
    auto logits = c10::static_intrusive_pointer_cast<Logits>(context->saved_data["logits"].toCapsule());
    const torch::Tensor values = std::move(logits->values), classes = context->get_saved_variables().front();
    require<ScheduleError>(values.defined() && static_cast<std::int64_t>(values._version()) == logits->version,
                           "the logits of a loss were changed in place before its backward pass, or it runs a second ",
                           "time: copy the logits before they change, and compute the loss again");
    const torch::Tensor result = values.storage().use_count() == 1 ? values : torch::empty_like(values);
    for_rows(values, [&](std::int64_t begin, std::int64_t count) {
      const torch::Tensor logs = values.narrow(0, begin, count).log_softmax(1);
      const torch::Tensor of_logs =
          at::nll_loss_backward(gradients.front(), logs, classes.narrow(0, begin, count), {}, at::Reduction::Sum,
                                ignored_target, /*total_weight=*/torch::ones({}, logs.options()));
      result.narrow(0, begin, count).copy_(at::_log_softmax_backward_data(of_logs, logs, 1, logs.scalar_type()));
    });
    return {result, torch::Tensor()};
  }

  static void for_rows(const torch::Tensor& logits, const std::function<void(std::int64_t, std::int64_t)>& run) {
    const std::int64_t rows = std::max<std::int64_t>(1, rows_together / logits.size(1));
    for (std::int64_t begin = 0; begin < logits.size(0); begin += rows)
      run(begin, std::min(rows, logits.size(0) - begin));
  }
};

torch::Tensor sum_of_cross_entropy(const torch::Tensor& output, const torch::Tensor& target) {
  if (output.dim() == 2 && target.dim() == 1 && target.size(0) == output.size(0) && output.is_cpu() &&
      output.scalar_type() == torch::kFloat32 && output.is_contiguous() && output.numel() > 2 * rows_together)
    return LargeCrossEntropy::apply(output, target);
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
