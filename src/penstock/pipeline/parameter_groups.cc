#include "penstock/pipeline/parameter_groups.h"

#include <algorithm>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

/// The optimisers of one stage's groups.
class GroupedOptimizer : public Optimizer {
 public:
  struct Part {
    std::unique_ptr<Optimizer> optimizer;
    double proportion = 1;  // of its rate to that of the rest
  };

  GroupedOptimizer(std::vector<Part> parts, std::optional<double> rate) : parts_(std::move(parts)), rate_(rate) {}

  void step() override {
    for (const Part& part : parts_) part.optimizer->step();
  }
  void set_learning_rate(double rate) override {
    for (const Part& part : parts_) part.optimizer->set_learning_rate(rate * part.proportion);
    rate_ = rate;
  }
  std::optional<double> learning_rate() const override { return rate_; }

  OptimizerState state() const override {
    OptimizerState all;
    for (const Part& part : parts_) all.merge(part.optimizer->state());
    return all;
  }
  void load_state(const OptimizerState& state) override {
    for (const Part& part : parts_) part.optimizer->load_state(state);
  }

 private:
  std::vector<Part> parts_;
  std::optional<double> rate_;
};

/// An optimiser of one parameter with one number.
std::unique_ptr<Optimizer> made_by(const OptimizerFactory& factory) {
  return factory({{"number", torch::zeros({1}).requires_grad_()}});
}

}  // namespace

ParameterFilter::ParameterFilter(std::string pattern)
    : name_(pattern),
      is_pattern_(true),
      takes_([pattern](const NamedParameter& parameter) { return fits_pattern(pattern, parameter.name); }) {}

ParameterFilter::ParameterFilter(std::string name, std::function<bool(const NamedParameter&)> takes)
    : name_(std::move(name)), takes_(std::move(takes)) {
  require<ConfigError>(takes_ != nullptr, "the parameter group '", name_, "' has no function that chooses parameters");
}

const ParameterFilter no_decay("no_decay", [](const NamedParameter& p) { return p.value.dim() < 2; });

std::size_t ParameterGroups::group_of(const NamedParameter& parameter) const {
  const auto found =
      std::find_if(groups_.begin(), groups_.end(), [&](const Group& group) { return group.which.takes(parameter); });
  return static_cast<std::size_t>(found - groups_.begin());
}

OptimizerFactory ParameterGroups::factory() const {
  if (groups_.empty()) return rest_;
  return [groups = *this](const std::vector<NamedParameter>& named) -> std::unique_ptr<Optimizer> {
    std::vector<std::vector<NamedParameter>> members(groups.groups_.size() + 1);
    for (const NamedParameter& parameter : named) members[groups.group_of(parameter)].push_back(parameter);
    // A stage may have no parameter of the rest, but proportions still refer to the rest's rate.
    const std::optional<double> whole = made_by(groups.rest_)->learning_rate();
    std::vector<GroupedOptimizer::Part> parts;
    for (std::size_t g = 0; g < members.size(); ++g) {
      if (members[g].empty()) continue;
      const bool is_rest = g == groups.groups_.size();
      auto optimizer = (is_rest ? groups.rest_ : groups.groups_[g].optimizer)(members[g]);
      const std::optional<double> own = optimizer->learning_rate();
      const double proportion = !is_rest && own && whole && *whole > 0 ? *own / *whole : 1;
      parts.push_back({std::move(optimizer), proportion});
    }
    return std::make_unique<GroupedOptimizer>(std::move(parts), whole);
  };
}

bool ParameterGroups::are_elementwise() const {
  return made_by(rest_)->is_elementwise() &&
         std::ranges::all_of(groups_, [](const Group& group) { return made_by(group.optimizer)->is_elementwise(); });
}

void ParameterGroups::require_all_used(const std::function<std::vector<NamedParameter>()>& parameters) const {
  if (groups_.empty()) return;
  std::vector<bool> used(groups_.size() + 1, false);
  std::vector<std::string> names;
  for (const NamedParameter& parameter : parameters()) {
    used[group_of(parameter)] = true;
    names.push_back(parameter.name);
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (used[g] || !groups_[g].which.is_pattern() || names.empty()) continue;
    const std::string& pattern = groups_[g].which.name();
    throw ConfigError(say("the parameter group '", pattern,
                          "' takes no parameter of the network that another group "
                          "does not take before it: correct the pattern (the nearest name is '",
                          nearest(pattern, names), "'), or leave the group out"));
  }
}

}  // namespace penstock
