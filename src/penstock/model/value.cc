#include "penstock/model/value.h"

#include "penstock/base/error.h"
#include "penstock/model/graph.h"

namespace penstock {

const torch::Tensor& Value::tensor() const {
  if (is_symbolic())
    throw PlanError(say("forward looks at the contents of '", tracer_->name_of(*this),
                        "', which has none while the network is traced: put the code that needs them into "
                        "penstock::apply(name, function, {values})"));
  return tensor_;
}

std::int64_t Value::size(std::int64_t dimension) const { return tensor().size(dimension); }

Value::operator bool() const { return tensor().item<bool>(); }

Values apply(const std::string& name, const TensorFunction& function, const Values& inputs, int outputs) {
  if (Tracer* tracer = Tracer::of(name, inputs)) return tracer->add_function(name, function, inputs, outputs);
  Tensors tensors;
  for (const Value& input : inputs) tensors.push_back(input.tensor());
  Values results;
  for (torch::Tensor& result : function(tensors)) results.emplace_back(std::move(result));
  require<PlanError>(static_cast<int>(results.size()) == outputs, "'", name, "' returned ", results.size(),
                     " values, but says that it returns ", outputs);
  return results;
}

Value apply(const std::string& name, const std::function<torch::Tensor(const Tensors&)>& function,
            const Values& inputs) {
  return apply(
             name, [function](const Tensors& tensors) { return Tensors{function(tensors)}; }, inputs, 1)
      .front();
}

}  // namespace penstock
