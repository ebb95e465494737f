// Several optimisers for the parameters of one network, chosen by the parameters' names.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/rank/optimizer.h"

namespace penstock {

/// Selects the parameters of a group.
class ParameterFilter {
 public:
  /// By full name: '*' matches any characters, including dots, and '?' one: "*.bias", "encoder.*", "head.weight".
  ParameterFilter(std::string pattern);  // NOLINT: groups are written as names
  ParameterFilter(const char* pattern) : ParameterFilter(std::string(pattern)) {}  // NOLINT
  /// By a function of name and value, which must return the same on every rank. `name` is for messages.
  ParameterFilter(std::string name, std::function<bool(const NamedParameter&)> takes);

  bool takes(const NamedParameter& parameter) const { return takes_(parameter); }
  /// The pattern, or the function's name, for messages.
  const std::string& name() const { return name_; }
  bool is_pattern() const { return is_pattern_; }

 private:
  std::string name_;
  bool is_pattern_ = false;
  std::function<bool(const NamedParameter&)> takes_;
};

/// Parameters with fewer than two dimensions, to which weight decay is usually not applied: biases, and the weights of
/// normalisation layers.
extern const ParameterFilter no_decay;

/// For Pipeline::optimize_with:
///
///   const auto adamw = [](double decay) {
///     return [decay](auto parameters) {
///       return torch::optim::AdamW(parameters, torch::optim::AdamWOptions(3e-4).weight_decay(decay));
///     };
///   };
///   pipeline.optimize_with(ParameterGroups(adamw(0.1)).add(no_decay, adamw(0)));
///
/// A parameter belongs to the first group whose filter takes it; those that no group takes belong to the optimiser of
/// the constructor, `rest`. Pipeline::set_learning_rate sets the rate of `rest`; the rates of groups keep their initial
/// proportion to it. Optimisers update each parameter independently, so that groups do not depend on the partition.
class ParameterGroups {
 public:
  template <class Make>
  ParameterGroups(Make rest) : rest_(as_optimizer_factory(std::move(rest))) {}  // NOLINT: one group is its optimiser

  template <class Make>
  ParameterGroups& add(ParameterFilter which, Make make) {
    groups_.push_back({std::move(which), as_optimizer_factory(std::move(make))});
    return *this;
  }

  OptimizerFactory factory() const;
  /// Throws ConfigError, which names the pattern, if a group takes none of the whole network's parameters, which
  /// `parameters` returns; it is called only if there are groups.
  void require_all_used(const std::function<std::vector<NamedParameter>()>& parameters) const;
  /// Whether all optimisers are Optimizer::is_elementwise(). Makes one of each.
  bool are_elementwise() const;

 private:
  struct Group {
    ParameterFilter which;
    OptimizerFactory optimizer;
  };
  /// The index of the parameter's group; groups_.size() for the rest.
  std::size_t group_of(const NamedParameter& parameter) const;

  OptimizerFactory rest_;
  std::vector<Group> groups_;
};

}  // namespace penstock
