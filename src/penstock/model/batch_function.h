// Function types for losses and metrics: a user's function of outputs and targets, each one tensor or a list of
// tensors.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "penstock/base/tensor.h"

namespace penstock {

/// Which targets a function reads; follows from the type of its parameter.
enum class TargetUse {
  first,  // const torch::Tensor&: the first target
  all,    // const std::vector<torch::Tensor>&: all targets
  none    // the function has no parameter for targets
};

namespace traits {

using Tensors = std::vector<torch::Tensor>;

template <class F, class Result, class... Arguments>
concept Gives = std::is_invocable_r_v<Result, F&, const Arguments&...>;
/// False for a lambda with `auto` parameters. It would accept a list too, but the check itself would compile its body
/// for a list, which may not compile; such a lambda is therefore taken for a function of single tensors.
template <class F>
concept HasOneCall = requires {
  &F::operator();
};

/// Whether `function` is an empty std::function or a null pointer.
template <class F>
bool is_null(const F& function) {
  if constexpr (requires { function == nullptr; })
    return function == nullptr;
  else
    return false;
}

}  // namespace traits

/// Wraps any callable of (outputs, targets) or of (outputs). A parameter of type torch::Tensor receives the first
/// output or target, a std::vector of tensors receives all of them:
/// `[](const torch::Tensor& output, const torch::Tensor& target) { ... }`,
/// `[](const std::vector<torch::Tensor>& outputs) { ... }`.
/// Owns a copy of the callable. Calling an empty BatchFunction throws std::bad_function_call. Several ranks may call
/// one BatchFunction at the same time, so the callable must be thread-safe.
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
      take<torch::Tensor, torch::Tensor>(std::move(function), TargetUse::first);
    } else if constexpr (traits::Gives<F, Result, Tensors, Tensors>) {
      take<Tensors, Tensors>(std::move(function), TargetUse::all);
    } else if constexpr (traits::Gives<F, Result, Tensors, torch::Tensor>) {
      take<Tensors, torch::Tensor>(std::move(function), TargetUse::first);
    } else if constexpr (traits::Gives<F, Result, torch::Tensor, Tensors>) {
      take<torch::Tensor, Tensors>(std::move(function), TargetUse::all);
    } else if constexpr (traits::Gives<F, Result, torch::Tensor, torch::Tensor>) {
      take<torch::Tensor, torch::Tensor>(std::move(function), TargetUse::first);
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

  /// `outputs` must not be empty; `targets` must not be empty either if targets() is TargetUse::first.
  Result operator()(const Tensors& outputs, const Tensors& targets) const { return function_(outputs, targets); }
  Result operator()(const torch::Tensor& output, const torch::Tensor& target) const {
    return function_({output}, {target});
  }
  explicit operator bool() const { return static_cast<bool>(function_); }
  TargetUse targets() const { return targets_; }

 private:
  template <class Wanted>
  static const Wanted& wanted(const Tensors& all) {
    if constexpr (std::same_as<Wanted, Tensors>)
      return all;
    else
      return all.front();
  }

  template <class Output, class Target, class F>
  void take(F function, TargetUse targets) {
    targets_ = targets;
    function_ = [f = std::move(function)](const Tensors& outputs, const Tensors& all_targets) mutable -> Result {
      return f(wanted<Output>(outputs), wanted<Target>(all_targets));
    };
  }

  std::function<Result(const Tensors& outputs, const Tensors& targets)> function_;
  TargetUse targets_ = TargetUse::none;
};

/// As BatchFunction, for a callable that computes a number from the targets: from the first one (torch::Tensor)
/// or from all (std::vector of tensors).
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
      targets_ = TargetUse::first;
      function_ = [f = std::move(function)](const Tensors& targets) mutable -> double { return f(targets.front()); };
    } else {
      targets_ = TargetUse::all;
      function_ = std::move(function);
    }
  }

  /// `targets` must not be empty if targets() is TargetUse::first.
  double operator()(const Tensors& targets) const { return function_(targets); }
  double operator()(const torch::Tensor& target) const { return function_({target}); }
  explicit operator bool() const { return static_cast<bool>(function_); }
  TargetUse targets() const { return targets_; }

 private:
  std::function<double(const Tensors& targets)> function_;
  TargetUse targets_ = TargetUse::none;
};

}  // namespace penstock
