// A function of one batch's outputs and targets, written for one of each or for any number.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "penstock/base/tensor.h"

namespace penstock {

/// What a BatchFunction looks at, by its parameters.
enum class Looks {
  at_one,  // const torch::Tensor&: the first
  at_all,  // const std::vector<torch::Tensor>&
  nowhere  // there is no such parameter
};

namespace traits {

using Tensors = std::vector<torch::Tensor>;

template <class F, class Result, class... Arguments>
concept Gives = std::is_invocable_r_v<Result, F&, const Arguments&...>;
/// A lambda with `auto` parameters takes anything, and asking it about a list would compile its body for one.
template <class F>
concept HasOneCall = requires {
  &F::operator();
};

/// Whether it is an empty std::function or a null pointer.
template <class F>
bool is_null(const F& function) {
  if constexpr (requires { function == nullptr; })
    return function == nullptr;
  else
    return false;
}

}  // namespace traits

/// Made from anything that can be called with (outputs, targets) or with (outputs) alone, each a tensor (the first) or
/// a std::vector of tensors (all): `[](const torch::Tensor& output, const torch::Tensor& target) { ... }`,
/// `[](const std::vector<torch::Tensor>& outputs) { ... }`.
template <class Result>
class BatchFunction {
 public:
  using Tensors = std::vector<torch::Tensor>;

  BatchFunction() = default;
  BatchFunction(std::nullptr_t) {}  // NOLINT: none

  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, BatchFunction> &&
           (traits::Gives<F, Result, torch::Tensor, torch::Tensor> || traits::Gives<F, Result, Tensors, Tensors> ||
            traits::Gives<F, Result, Tensors, torch::Tensor> || traits::Gives<F, Result, torch::Tensor, Tensors> ||
            traits::Gives<F, Result, Tensors> || traits::Gives<F, Result, torch::Tensor>))
      BatchFunction(F function) {  // NOLINT: implicitly, as std::function
    if (traits::is_null(function)) return;
    if constexpr (!traits::HasOneCall<F> && traits::Gives<F, Result, torch::Tensor, torch::Tensor>) {
      take<torch::Tensor, torch::Tensor>(std::move(function), Looks::at_one);
    } else if constexpr (traits::Gives<F, Result, Tensors, Tensors>) {
      take<Tensors, Tensors>(std::move(function), Looks::at_all);
    } else if constexpr (traits::Gives<F, Result, Tensors, torch::Tensor>) {
      take<Tensors, torch::Tensor>(std::move(function), Looks::at_one);
    } else if constexpr (traits::Gives<F, Result, torch::Tensor, Tensors>) {
      take<torch::Tensor, Tensors>(std::move(function), Looks::at_all);
    } else if constexpr (traits::Gives<F, Result, torch::Tensor, torch::Tensor>) {
      take<torch::Tensor, torch::Tensor>(std::move(function), Looks::at_one);
    } else if constexpr (traits::Gives<F, Result, Tensors>) {
      function_ = [f = std::move(function)](const Tensors& outputs, const Tensors&) mutable -> Result {
        return f(outputs);
      };
    } else {
      function_ = [f = std::move(function)](const Tensors& outputs, const Tensors&) mutable -> Result {
        return f(outputs.front());
      };
    }
  }

  /// Where it looks at one target, `targets` must have one.
  Result operator()(const Tensors& outputs, const Tensors& targets) const { return function_(outputs, targets); }
  Result operator()(const torch::Tensor& output, const torch::Tensor& target) const {
    return function_({output}, {target});
  }
  explicit operator bool() const { return static_cast<bool>(function_); }
  Looks targets() const { return targets_; }

 private:
  template <class Wanted>
  static const Wanted& wanted(const Tensors& all) {
    if constexpr (std::same_as<Wanted, Tensors>)
      return all;
    else
      return all.front();
  }

  template <class Output, class Target, class F>
  void take(F function, Looks targets) {
    targets_ = targets;
    function_ = [f = std::move(function)](const Tensors& outputs, const Tensors& all_targets) mutable -> Result {
      return f(wanted<Output>(outputs), wanted<Target>(all_targets));
    };
  }

  std::function<Result(const Tensors& outputs, const Tensors& targets)> function_;
  Looks targets_ = Looks::nowhere;
};

/// A number from one batch's targets, by the same rules: made from a function of a tensor (the first) or of all.
class TargetFunction {
 public:
  using Tensors = std::vector<torch::Tensor>;

  TargetFunction() = default;
  TargetFunction(std::nullptr_t) {}  // NOLINT: none

  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, TargetFunction> &&
           (traits::Gives<F, double, torch::Tensor> || traits::Gives<F, double, Tensors>))
      TargetFunction(F function) {  // NOLINT: implicitly, as std::function
    if (traits::is_null(function)) return;
    if constexpr ((!traits::HasOneCall<F> && traits::Gives<F, double, torch::Tensor>) ||
                  !traits::Gives<F, double, Tensors>) {
      targets_ = Looks::at_one;
      function_ = [f = std::move(function)](const Tensors& targets) mutable -> double { return f(targets.front()); };
    } else {
      targets_ = Looks::at_all;
      function_ = std::move(function);
    }
  }

  /// Where it looks at one target, `targets` must have one.
  double operator()(const Tensors& targets) const { return function_(targets); }
  double operator()(const torch::Tensor& target) const { return function_({target}); }
  explicit operator bool() const { return static_cast<bool>(function_); }
  Looks targets() const { return targets_; }

 private:
  std::function<double(const Tensors& targets)> function_;
  Looks targets_ = Looks::nowhere;
};

}  // namespace penstock
