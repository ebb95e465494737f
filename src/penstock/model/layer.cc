#include "penstock/model/layer.h"

#include "penstock/base/error.h"

namespace penstock {
namespace {

struct OneParameter : torch::nn::Module {
  explicit OneParameter(const torch::Tensor& made) : value(register_parameter(raw_parameter, made)) {}
  torch::Tensor value;
};

}  // namespace

Value Parameter::value() const {
  if (Tracer* tracer = Tracer::running()) return tracer->add_layer(record_, {}).front();
  return standalone(*record_, 0).forward({}).front();
}

LayerFactory parameter_factory(std::function<torch::Tensor()> make) {
  const auto build = [make = std::move(make)] {
    auto module = std::make_shared<OneParameter>(make());
    return BuiltLayer{module, [module](const Tensors&) { return Tensors{module->value}; }};
  };
  return {build, 1};
}

void Layer::tie(const std::string& parameter, const Layer& owner, const std::string& owner_parameter) {
  const ParameterOfLayer target = owner_of(owner.record_, owner_parameter);
  require<ScheduleError>(target.layer != record_ || target.name != parameter, "'", record_->path, ".", parameter,
                         "' is tied to itself: name the parameter of another layer");
  require<ScheduleError>(
      !record_->standalone, "layer '", record_->path,
      "' is tied after it was built: tie it before the network runs or its parameters are asked for");
  record_->ties[parameter] = target;
}

void Layer::tie(const std::string& parameter, const Parameter& owner) {
  tie(parameter, Layer(owner.record_), raw_parameter);
}

Values Layer::call(const Values& inputs) const {
  if (Tracer* tracer = Tracer::of(record_->path, inputs)) return tracer->add_layer(record_, inputs);
  return apply(record_->path, standalone(*record_, 0).forward, inputs, record_->factory.outputs);
}

namespace traits {

void wrong_input_count(const torch::nn::Module& module, std::size_t given) {
  throw ScheduleError(say(module.name(), "::forward does not take ", given, " tensors"));
}

}  // namespace traits

}  // namespace penstock
