// A layer: a module that is built when and where it is needed, with a name and, if one likes, a stage.
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>

#include "penstock/model/layer_record.h"
#include "penstock/model/parameter.h"

namespace penstock {

/// A handle: copies are the same layer. Made by Cell::add.
class Layer {
 public:
  /// 0..S-1, in the order of the data flow. Unset: with the layers around it, or chosen by the partitioner.
  StageAnnotation pipeline_stage;
  /// The innermost annotation counts: `false` on a layer keeps it out of its Cell's recompute.
  RecomputeAnnotation recompute;

  Layer(const Layer&) = default;
  Layer& operator=(const Layer& other) {
    record_ = other.record_;
    pipeline_stage.stage_ = other.pipeline_stage.stage_;
    recompute.flag_ = other.recompute.flag_;
    return *this;
  }

  Value operator()(const Value& input) const { return call({input}).front(); }
  /// For modules with several inputs or outputs.
  Values call(const Values& inputs) const;

  /// Makes `parameter` of this layer one with `owner_parameter` of `owner`: one value, one optimiser state, and a
  /// gradient that is the sum over both uses, on whatever stages they are: `head.tie("weight", embedding, "weight")`.
  /// Before the network is built. Throws ScheduleError where the layer would be tied to itself; a Pipeline throws it for
  /// names that the modules do not have and for shapes that differ.
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
/// Tuples within tuples are flattened: torch::nn::LSTM gives (output, (hidden, cell)).
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

template <class M>
concept TakesOne = requires(M& module, const torch::Tensor& x) {
  module.forward(x);
};
template <class M>
concept TakesTwo = requires(M& module, const torch::Tensor& x) {
  module.forward(x, x);
};
template <class M>
concept TakesThree = requires(M& module, const torch::Tensor& x) {
  module.forward(x, x, x);
};

template <class M>
constexpr int outputs_of() {
  if constexpr (TakesOne<M>)
    return output_count<decltype(std::declval<M&>().forward(torch::Tensor()))>;
  else if constexpr (TakesTwo<M>)
    return output_count<decltype(std::declval<M&>().forward(torch::Tensor(), torch::Tensor()))>;
  else
    return output_count<decltype(std::declval<M&>().forward(torch::Tensor(), torch::Tensor(), torch::Tensor()))>;
}

/// The number of inputs did not fit the module's forward.
[[noreturn]] void wrong_input_count(const torch::nn::Module& module, std::size_t given);

template <class M>
BuiltLayer erase(std::shared_ptr<M> module) {
  static_assert(TakesOne<M> || TakesTwo<M> || TakesThree<M>,
                "a layer's module needs a forward that takes one, two or three tensors");
  return {module, [module](const Tensors& x) -> Tensors {
            if constexpr (TakesOne<M>)
              if (x.size() == 1) return as_tensors(module->forward(x[0]));
            if constexpr (TakesTwo<M>)
              if (x.size() == 2) return as_tensors(module->forward(x[0], x[1]));
            if constexpr (TakesThree<M>)
              if (x.size() == 3) return as_tensors(module->forward(x[0], x[1], x[2]));
            wrong_input_count(*module, x.size());
          }};
}

template <class T>
auto module_pointer(T made) {
  if constexpr (requires { made.ptr(); })
    return made.ptr();  // torch::nn::Linear and its like
  else
    return made;  // already a std::shared_ptr
}

}  // namespace traits

/// From anything that makes a torch module: `[] { return torch::nn::Linear(784, 512); }`.
template <class Make>
requires std::invocable<Make&> LayerFactory layer_factory(Make make) {
  using Module = typename decltype(traits::module_pointer(make()))::element_type;
  return {[make]() mutable { return traits::erase<Module>(traits::module_pointer(make())); },
          traits::outputs_of<Module>()};
}

}  // namespace penstock
