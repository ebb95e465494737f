// A layer of a Cell: a named module that is built only on the ranks that need it, with optional annotations.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "penstock/model/layer_record.h"

namespace penstock {

/// A handle, made by Cell::add_parameter; copies refer to the same parameter. It has no stage of its own: it is held on
/// every stage that uses value(). If several stages use it, it is tied: one value, and a gradient that is the sum over
/// all uses. It is not sent along with micro-batches.
class Parameter {
 public:
  /// The parameter as a value: symbolic while the network is traced, the tensor itself in a standalone run.
  Value value() const;

 private:
  friend class Cell;
  friend class Layer;
  explicit Parameter(std::shared_ptr<LayerRecord> record) : record_(std::move(record)) {}

  std::shared_ptr<LayerRecord> record_;
};

/// Makes a module whose only parameter is the result of `make`, and whose forward returns it.
LayerFactory parameter_factory(std::function<torch::Tensor()> make);
/// The name of that parameter within its module.
inline constexpr const char* raw_parameter = "value";

/// A handle, made by Cell::add: copies refer to the same layer. Not thread-safe.
class Layer {
 public:
  /// 0..S-1, ascending along the data flow. Unset: the stage of the enclosing Cell, of the layers before it, or one
  /// chosen by the partitioner (see assign_stages).
  StageAnnotation pipeline_stage;
  /// The innermost annotation counts: `false` on a layer excludes it from the recompute of its Cell.
  RecomputeAnnotation recompute;

  Layer(const Layer&) = default;
  Layer& operator=(const Layer& other) {
    record_ = other.record_;
    pipeline_stage.value_ = other.pipeline_stage.value_;
    recompute.value_ = other.recompute.value_;
    return *this;
  }

  Value operator()(const Value& input) const { return call({input}).front(); }
  /// For modules with several inputs, up to eight, or outputs. Throws ScheduleError for a number of inputs that the
  /// module's forward does not take.
  Values call(const Values& inputs) const;

  /// Ties `parameter` of this layer to `owner_parameter` of `owner`: one value, one optimiser state, and a gradient
  /// that is the sum over both uses, whichever stages they are on: `head.tie("weight", embedding, "weight")`. Call it
  /// before the network is built. Throws ScheduleError if the parameter would be tied to itself or if the layer is
  /// built already. The Pipeline throws ScheduleError for names that the modules do not have and for different shapes.
  void tie(const std::string& parameter, const Layer& owner, const std::string& owner_parameter);
  void tie(const std::string& parameter, const Parameter& owner);

 private:
  friend class Cell;
  explicit Layer(std::shared_ptr<LayerRecord> record)
      : pipeline_stage(record->stage), recompute(record->recompute), record_(std::move(record)) {}

  std::shared_ptr<LayerRecord> record_;
};

namespace traits {

inline Tensors as_tensors(torch::Tensor tensor) { return {std::move(tensor)}; }
inline Tensors as_tensors(Tensors tensors) { return tensors; }
/// Nested tuples are flattened: torch::nn::LSTM returns (output, (hidden, cell)).
template <class... T>
Tensors as_tensors(std::tuple<T...> tuple) {
  Tensors all;
  const auto append = [&all](Tensors some) { all.insert(all.end(), some.begin(), some.end()); };
  std::apply([&](auto&&... each) { (append(as_tensors(std::move(each))), ...); }, std::move(tuple));
  return all;
}

template <class T>
constexpr int output_count = 1;
template <class... T>
constexpr int output_count<std::tuple<T...>> = (0 + ... + output_count<T>);

/// The most tensors that the forward of a layer's module may take.
inline constexpr std::size_t most_inputs = 8;

template <std::size_t>
using TensorArgument = const torch::Tensor&;
template <class M, std::size_t... I>
constexpr bool takes_each(std::index_sequence<I...>) {
  return requires(M & module, TensorArgument<I>... x) { module.forward(x...); };
}
/// Whether M::forward takes `count` tensors.
template <class M, std::size_t count>
constexpr bool takes = takes_each<M>(std::make_index_sequence<count>());

/// The smallest number of tensors that M::forward takes; 0: it takes another number than 1 to most_inputs.
template <class M, std::size_t count = 1>
constexpr std::size_t fewest_inputs() {
  if constexpr (count > most_inputs)
    return 0;
  else if constexpr (takes<M, count>)
    return count;
  else
    return fewest_inputs<M, count + 1>();
}

template <class M, std::size_t... I>
decltype(auto) forward_each(M& module, const Tensors& x, std::index_sequence<I...>) {
  return module.forward(x[I]...);
}
template <std::size_t count, class M>
decltype(auto) forward_with(M& module, const Tensors& x) {
  return forward_each(module, x, std::make_index_sequence<count>());
}

template <class M>
constexpr int outputs_of() {
  return output_count<std::decay_t<decltype(forward_with<fewest_inputs<M>()>(std::declval<M&>(), Tensors()))>>;
}

/// Throws the error for a number of inputs that the module's forward does not take.
[[noreturn]] void wrong_input_count(const torch::nn::Module& module, std::size_t given);

/// The result of the forward that takes as many tensors as `x` has, `count` or more.
template <std::size_t count, class M>
Tensors call_forward(M& module, const Tensors& x) {
  if constexpr (count > most_inputs) {
    wrong_input_count(module, x.size());
  } else {
    if constexpr (takes<M, count>)
      if (x.size() == count) return as_tensors(forward_with<count>(module, x));
    return call_forward<count + 1>(module, x);
  }
}

template <class M>
BuiltLayer erase(std::shared_ptr<M> module) {
  static_assert(fewest_inputs<M>() > 0, "a layer's module needs a forward that takes one to eight tensors");
  return {module, [module](const Tensors& x) { return call_forward<1>(*module, x); }};
}

template <class T>
auto module_pointer(T made) {
  if constexpr (requires { made.ptr(); })
    return made.ptr();  // torch::nn::Linear and its like
  else
    return made;  // already a std::shared_ptr
}

}  // namespace traits

/// Makes a LayerFactory from a function that returns a torch module (a holder or a std::shared_ptr):
/// `[] { return torch::nn::Linear(784, 512); }`.
template <class Make>
requires std::invocable<Make&> LayerFactory layer_factory(Make make) {
  using Module = typename decltype(traits::module_pointer(make()))::element_type;
  return {[make]() mutable { return traits::erase<Module>(traits::module_pointer(make())); },
          traits::outputs_of<Module>()};
}

}  // namespace penstock
