#include "penstock/rank/optimizer.h"

#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <c10/util/Type.h>

#include <map>
#include <sstream>
#include <typeinfo>
#include <utility>

#include "penstock/base/error.h"

namespace penstock {
namespace {

/// The learning rate of `options`; none for options without one.
std::optional<double> rate_of(const torch::optim::OptimizerOptions& options) {
  try {
    return options.get_lr();
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

// Kinds of numbers beside tensors, as suffixes of slots. The names of a torch state's members contain no dot.
constexpr std::string_view int_suffix = ".int", float_suffix = ".float", bool_suffix = ".bool";

/// An archive of torch has no way to read back what was written to it but through its own format, here in memory. No
/// file is ever read so.
InputArchive read_back(OutputArchive& written) {
  std::stringstream bytes;
  written.save_to(bytes);
  InputArchive archive;
  archive.load_from(bytes);
  return archive;
}

/// A member of a parameter's state as a tensor of `state`, named "parameter/member".
void add_member(OptimizerState& state, const std::string& name, const c10::IValue& value) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) state[name] = value.toTensor();
  } else if (value.isInt()) {
    state[say(name, int_suffix)] = torch::tensor(value.toInt(), torch::kInt64);
  } else if (value.isDouble()) {
    state[say(name, float_suffix)] = torch::tensor(value.toDouble(), torch::kFloat64);
  } else if (value.isBool()) {
    state[say(name, bool_suffix)] = torch::tensor(value.toBool(), torch::kBool);
  } else {
    throw ConfigError(say("the optimiser's state '", name, "' is ", value.tagKind(),
                          ", and only tensors and numbers can be stored: a training with it cannot be resumed"));
  }
}

/// The inverse: writes the tensor `value` of the slot "member" or "member.int" to the archive of a parameter.
void write_member(OutputArchive& archive, const std::string& slot, const torch::Tensor& value) {
  const std::string member = slot.substr(0, slot.find('.'));
  const std::string_view kind = std::string_view(slot).substr(member.size());
  if (kind == int_suffix)
    archive.write(member, c10::IValue(value.item<std::int64_t>()));
  else if (kind == float_suffix)
    archive.write(member, c10::IValue(value.item<double>()));
  else if (kind == bool_suffix)
    archive.write(member, c10::IValue(value.item<bool>()));
  else
    archive.write(member, c10::IValue(value.clone()));
}

class TorchOptimizer : public Optimizer {
 public:
  TorchOptimizer(std::shared_ptr<torch::optim::Optimizer> torch, const std::vector<NamedParameter>& named)
      : torch_(std::move(torch)) {
    for (const NamedParameter& parameter : named) names_[parameter.value.unsafeGetTensorImpl()] = parameter.name;
    const std::optional<double> whole = rate_of(torch_->defaults());
    for (const auto& group : torch_->param_groups()) {
      const std::optional<double> own = group.has_options() ? rate_of(group.options()) : std::nullopt;
      proportions_.push_back(own && whole && *whole > 0 ? *own / *whole : 1);
    }
    rate_ = whole;
  }

  void step() override { torch_->step(); }

  void set_learning_rate(double rate) override {
    try {
      for (std::size_t i = 0; i < proportions_.size(); ++i)
        torch_->param_groups()[i].options().set_lr(rate * proportions_[i]);
    } catch (const c10::Error& error) {
      throw ConfigError(
          say("the learning rate of this optimiser cannot be set: override get_lr() and set_lr() of its "
              "options (",
              error.what_without_backtrace(), ")"));
    }
    rate_ = rate;
  }

  std::optional<double> learning_rate() const override { return rate_; }

  OptimizerState state() const override {
    OptimizerState state;
    for (const auto& [tensor, of_parameter] : torch_->state()) {
      OutputArchive written;
      translate([&] { of_parameter->serialize(written); });
      InputArchive archive = read_back(written);
      for (const std::string& member : archive.keys()) {
        c10::IValue value;
        archive.read(member, value);
        add_member(state, name_of(tensor) + "/" + member, value);
      }
    }
    return state;
  }

  // Composes what the optimiser's own save() would have written, in which parameters have numbers.
  void load_state(const OptimizerState& state) override {
    OutputArchive root;
    OutputArchive states(root.compilation_unit()), groups(root.compilation_unit());
    std::int64_t number = 0;
    const auto& all_groups = torch_->param_groups();
    groups.write("param_groups/size", torch::tensor(static_cast<std::int64_t>(all_groups.size())));
    for (std::size_t g = 0; g < all_groups.size(); ++g) {
      OutputArchive group(root.compilation_unit()), options(root.compilation_unit());
      const auto& parameters = all_groups[g].params();
      group.write("params/size", torch::tensor(static_cast<std::int64_t>(parameters.size())));
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const std::string key = std::to_string(++number);
        group.write(say("params/", i), c10::IValue(key));
        write_state_of(parameters[i], key, state, states);
      }
      translate([&] { all_groups[g].options().serialize(options); });
      group.write("options", options);
      groups.write(say("param_groups/", g), group);
    }
    root.write("pytorch_version", c10::IValue("1.5.0"));
    root.write("state", states);
    root.write("param_groups", groups);
    InputArchive archive = read_back(root);
    auto former = std::exchange(torch_->state(), {});
    try {
      torch_->load(archive);
    } catch (const std::exception& error) {
      torch_->state() = std::move(former);
      if (!dynamic_cast<const c10::Error*>(&error)) throw;  // of a class of the user's; torch's asks for a report to it
      throw ConfigError(say("the stored state, ",
                            state.empty() ? "which is empty" : "as '" + state.begin()->first + "'",
                            ", cannot be loaded by ", c10::demangle(typeid(*torch_).name()),
                            ": take the optimiser with which it was made (a class of its own overrides save() and ",
                            "load(), its state and its options serialize())"));
    }
  }

 private:
  template <class Call>
  static void translate(Call&& call) {
    try {
      call();
    } catch (const c10::Error& error) {
      throw ConfigError(say("the state of this optimiser cannot be stored or loaded: its class overrides save() and ",
                            "load(), its state and its options serialize() (", error.what_without_backtrace(), ")"));
    }
  }

  const std::string& name_of(const void* tensor) const {
    const auto found = names_.find(tensor);
    require<ConfigError>(found != names_.end(),
                         "an optimiser has state of a tensor that is no parameter of its stage: ",
                         "make it of the parameters that its function is given");
    return found->second;
  }

  /// Writes the tensors of `state` that belong to the parameter to the archive `states`, under `key`.
  void write_state_of(const torch::Tensor& parameter, const std::string& key, const OptimizerState& state,
                      OutputArchive& states) const {
    const std::string begin = name_of(parameter.unsafeGetTensorImpl()) + "/";
    OutputArchive written(states.compilation_unit());
    bool is_empty = true;
    for (auto entry = state.lower_bound(begin); entry != state.end() && entry->first.starts_with(begin); ++entry) {
      const torch::Tensor& value = entry->second;
      require<ConfigError>(value.dim() == 0 || value.numel() == 0 || value.sizes() == parameter.sizes(), "the state '",
                           entry->first, "' is of shape ", value.sizes(), ", and the parameter of shape ",
                           parameter.sizes());
      write_member(written, entry->first.substr(begin.size()), value);
      is_empty = false;
    }
    if (!is_empty) states.write(key, written);
  }

  std::shared_ptr<torch::optim::Optimizer> torch_;
  std::map<const void*, std::string> names_;  // by tensor
  std::vector<double> proportions_;           // ratio of each group's rate to that of the defaults
  std::optional<double> rate_;
};

}  // namespace

OptimizerState Optimizer::state() const {
  throw ConfigError("this optimiser cannot be stored: override state() and load_state() of its class");
}

void Optimizer::load_state(const OptimizerState&) {
  throw ConfigError("the state of this optimiser cannot be loaded: override state() and load_state() of its class");
}

const torch::Tensor& state_of(const OptimizerState& state, const std::string& parameter, std::string_view slot,
                              const torch::Tensor& like) {
  const std::string name = say(parameter, "/", slot);
  const auto found = state.find(name);
  require<ConfigError>(found != state.end(), "the state has no '", name,
                       "', which the optimiser needs: take the optimiser with which it was made");
  const torch::Tensor& value = found->second;
  require<ConfigError>(value.sizes() == like.sizes() && value.scalar_type() == like.scalar_type(), "the state '", name,
                       "' is ", value.dtype().name(), " of shape ", value.sizes(), ", and the optimiser needs ",
                       like.dtype().name(), " of shape ", like.sizes());
  return value;
}

std::unique_ptr<Optimizer> step_with(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                     const std::vector<NamedParameter>& named) {
  require<ConfigError>(optimizer != nullptr, "the function given to optimize_with returned no optimiser");
  require<ConfigError>(!dynamic_cast<const torch::optim::LBFGS*>(optimizer.get()),
                       "torch::optim::LBFGS cannot step a pipeline: it needs a closure that computes the loss of the "
                       "whole network several times within one step, and each stage has an optimiser of its own; take "
                       "one that works on each parameter by itself, such as Adam or SGD");
  return std::make_unique<TorchOptimizer>(std::move(optimizer), named);
}

std::vector<torch::Tensor> values_of(const std::vector<NamedParameter>& parameters) {
  std::vector<torch::Tensor> values;
  for (const NamedParameter& parameter : parameters) values.push_back(parameter.value);
  return values;
}

}  // namespace penstock
