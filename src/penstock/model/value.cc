#include "penstock/model/value.h"

#include <algorithm>

#include "penstock/base/error.h"

namespace penstock {

Size Size::of_samples(std::int64_t factor) {
  Size size(factor);
  size.is_of_samples_ = true;
  return size;
}

Size::operator std::int64_t() const {
  require<ScheduleError>(
      is_number(),
      "forward uses the number of samples as a number, but it differs between "
      "micro-batches and has no value while the network is traced: keep it as a size (auto n = x.size(0)) and give it "
      "to view(), reshape() or expand(), or put the code that needs it into penstock::apply(name, "
      "function, {values})");
  return factor_;
}

Size operator*(const Size& a, const Size& b) {
  require<ScheduleError>(a.is_number() || b.is_number(),
                         "forward multiplies the number of samples with itself: no value "
                         "has such a size");
  const std::int64_t factor = a.factor() * b.factor();
  return a.is_number() && b.is_number() ? Size(factor) : Size::of_samples(factor);
}

Size operator/(const Size& a, const Size& b) {
  require<ScheduleError>(b.factor() != 0, "forward divides a size by 0");
  if (a.is_number() && b.is_number()) return Size(a.factor() / b.factor());
  require<ScheduleError>(
      !a.is_number() && a.factor() % b.factor() == 0,
      "forward divides a multiple of the number of "
      "samples, or by one, and it does not go evenly: put the code that needs this into penstock::apply(name, "
      "function, {values})");
  return b.is_number() ? Size::of_samples(a.factor() / b.factor()) : Size(a.factor() / b.factor());
}

namespace {

thread_local Tracer* tracer_of_thread = nullptr;

TensorFunction with_one_output(const std::function<torch::Tensor(const Tensors&)>& function) {
  return [function](const Tensors& tensors) { return Tensors{function(tensors)}; };
}

}  // namespace

Tracer* Tracer::running() { return tracer_of_thread; }

void Tracer::set_running(Tracer* tracer) { tracer_of_thread = tracer; }

Tracer* Tracer::among(const Values& values) {
  const auto symbolic = std::find_if(values.begin(), values.end(), [](const Value& v) { return v.is_symbolic(); });
  return symbolic == values.end() ? nullptr : symbolic->tracer_;
}

Tracer* Tracer::of(const std::string& user, const Values& values) {
  Tracer* tracer = among(values);
  if (!tracer) return nullptr;
  std::string traced;
  bool has_real = false;
  for (const Value& value : values) {
    if (!value.is_symbolic())
      has_real = true;
    else if (traced.empty())
      traced = tracer->name_of(value);
  }
  require<ScheduleError>(!has_real, "'", user, "' takes '", traced,
                         "', which is traced, together with a real tensor: make the tensor a parameter of a layer, or "
                         "make it inside penstock::apply");
  return tracer;
}

const torch::Tensor& Value::tensor() const {
  if (is_symbolic())
    throw ScheduleError(say("forward reads the contents of '", tracer_->name_of(*this),
                            "', which has none while the network is traced: put the code that needs them into "
                            "penstock::apply(name, function, {values})"));
  return tensor_;
}

Value::operator bool() const { return tensor().item<bool>(); }

Values apply(const std::string& name, const TensorFunction& function, const Values& inputs, int outputs) {
  if (Tracer* tracer = Tracer::of(name, inputs)) return tracer->add_function(name, function, inputs, outputs);
  Tensors tensors;
  for (const Value& input : inputs) tensors.push_back(input.tensor());
  Values results;
  for (torch::Tensor& result : function(tensors)) results.emplace_back(std::move(result));
  require<ScheduleError>(static_cast<int>(results.size()) == outputs, "'", name, "' returned ", results.size(),
                         " values, but is declared to return ", outputs);
  return results;
}

Values apply_with_constants(const std::string& name, const TensorFunction& function, const Values& inputs,
                            int outputs) {
  Values symbols;
  Tensors constants;  // one per input; undefined for symbols
  for (const Value& input : inputs) {
    constants.push_back(input.is_symbolic() ? torch::Tensor() : input.tensor());
    if (input.is_symbolic()) symbols.push_back(input);
    require<ScheduleError>(
        input.is_symbolic() || !input.tensor().requires_grad() || !Tracer::among(inputs), "'", name,
        "' takes a tensor that requires a gradient, but no pipeline would train it: make it a parameter "
        "of a layer, or of the Cell (add_parameter)");
  }
  if (symbols.empty() || symbols.size() == inputs.size()) return apply(name, function, inputs, outputs);
  const auto with_constants = [function, constants](const Tensors& given) {
    Tensors all = constants;
    std::size_t next = 0;
    for (torch::Tensor& each : all) each = each.defined() ? each.to(given.front().device()) : given[next++];
    return function(all);
  };
  return apply(name, with_constants, symbols, outputs);
}

Value apply_with_constants(const std::string& name, const std::function<torch::Tensor(const Tensors&)>& function,
                           const Values& inputs) {
  return apply_with_constants(name, with_one_output(function), inputs, 1).front();
}

Value apply(const std::string& name, const std::function<torch::Tensor(const Tensors&)>& function,
            const Values& inputs) {
  return apply(name, with_one_output(function), inputs, 1).front();
}

}  // namespace penstock
