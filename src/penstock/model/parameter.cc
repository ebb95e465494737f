#include "penstock/model/parameter.h"

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

}  // namespace penstock
