// Makes a Cell from an existing torch module: the names of its submodules in execution order.
//
//   auto network = layer_list(resnet, {"conv1", "bn1", "relu", "maxpool", "layer1", "layer2", boundary_here, "layer3",
//                                      "layer4", "avgpool", {[](auto x) { return x.flatten(1); }, "behind"}, "fc"});
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "penstock/model/cell.h"
#include "penstock/model/layer.h"

namespace penstock {

/// One module class that layer_list can call. torch registers submodules by name without their static types, so the
/// class has to be recognised at run time.
struct CallableKind {
  std::function<bool(const torch::nn::Module&)> fits;  // exact type only: a derived class may have another forward
  std::function<BuiltLayer(const std::shared_ptr<torch::nn::Module>&)> call;
  std::vector<int> takes;  // possible numbers of input tensors of forward
  int gives = 1;           // number of output tensors
};

template <class M>
CallableKind callable_kind() {
  CallableKind kind;
  // Generic lambdas, so that torch::nn::Module may be incomplete here.
  kind.fits = [](const auto& module) { return typeid(module) == typeid(M); };
  kind.call = [](const auto& module) { return traits::erase<M>(std::dynamic_pointer_cast<M>(module)); };
  const auto add = [&]<std::size_t... I>(std::index_sequence<I...>) {
    const bool takes[] = {traits::takes<M, I + 1>...};
    for (std::size_t i = 0; i < traits::most_inputs; ++i)
      if (takes[i]) kind.takes.push_back(static_cast<int>(i) + 1);
  };
  add(std::make_index_sequence<traits::most_inputs>());
  kind.gives = traits::outputs_of<M>();
  return kind;
}

/// The module classes of torch whose forward takes only tensors. Internal to this module.
const std::vector<CallableKind>& torch_kinds();

/// A boundary between two stages in an execution sequence: with one marker, the layers before it are annotated with
/// stage 0 and those after it with stage 1, and so on.
struct BoundaryMarker {};
inline constexpr BoundaryMarker boundary_here{};

namespace traits {

template <class F>
concept TakesTensors =
    std::invocable<F&, const torch::Tensor&> || std::invocable<F&, const torch::Tensor&, const torch::Tensor&> ||
    std::invocable<F&, const torch::Tensor&, const torch::Tensor&, const torch::Tensor&>;

template <class F>
constexpr int arity_of() {
  if constexpr (std::invocable<F&, const torch::Tensor&>)
    return 1;
  else if constexpr (std::invocable<F&, const torch::Tensor&, const torch::Tensor&>)
    return 2;
  else
    return 3;
}

template <class F>
auto call_with(F& f, const Tensors& x) {
  if constexpr (arity_of<F>() == 1)
    return f(x[0]);
  else if constexpr (arity_of<F>() == 2)
    return f(x[0], x[1]);
  else
    return f(x[0], x[1], x[2]);
}

}  // namespace traits

/// One entry of an execution sequence: the name of a submodule, a named layer factory, a function, or a stage boundary.
class Execution {
 public:
  /// The name of any submodule that can be called: "fc", "layer1.0.conv1". A name that occurs twice is one layer that
  /// is called twice, with one set of parameters.
  Execution(const char* name) : name_(name) {}             // NOLINT: sequences are written as plain names
  Execution(std::string name) : name_(std::move(name)) {}  // NOLINT
  Execution(BoundaryMarker) : kind_(Kind::partition) {}    // NOLINT
  /// A layer from a factory, as for Cell::add, instead of a submodule: {"fc", [] { return Linear(8, 2); }}. Later
  /// entries call the same layer again by its plain name.
  template <class Make>
  requires std::invocable<Make&> Execution(std::string name, Make make)
      : kind_(Kind::factory), name_(std::move(name)), make_(layer_factory(std::move(make))) {}
  /// A function of one, two or three tensors that returns one tensor or a tuple of them. `place` "behind": it runs
  /// after the preceding entry, on the stage of that entry; "front": before the next named entry, on the stage of that
  /// entry. Functions have no parameters; trainable tensors belong in a module. Consecutive functions run in the given
  /// order.
  template <traits::TakesTensors F>
  Execution(F function, std::string place = "behind")  // NOLINT
      : kind_(Kind::function),
        place_(std::move(place)),
        function_([function](const Tensors& x) mutable { return traits::as_tensors(traits::call_with(function, x)); }),
        takes_(traits::arity_of<F>()),
        gives_(traits::output_count<decltype(traits::call_with(function, Tensors()))>) {}

 private:
  friend class ListedLayers;
  enum class Kind { name, factory, function, partition };

  Kind kind_ = Kind::name;
  std::string name_;
  std::string place_;
  LayerFactory make_;
  TensorFunction function_;
  int takes_ = 1;
  int gives_ = 1;
};

using ExecutionSequence = std::vector<Execution>;

/// The implementation of layer_list below. `kinds` are the user's module classes; they take precedence over torch's.
std::unique_ptr<Cell> list_layers(const std::shared_ptr<torch::nn::Module>& module, const ExecutionSequence& sequence,
                                  std::vector<CallableKind> kinds);

/// Returns a Cell that runs the named submodules of `module` (a std::shared_ptr or a torch holder) in the order of
/// `sequence`; each entry receives the outputs of the one before it. Without a sequence it runs all submodules in the
/// order of their registration, with containers (Sequential, ModuleList, ModuleDict) unrolled.
///
/// Entries may be torch's own module classes and any element of a Sequential; pass other classes as template arguments:
/// `layer_list<BlockImpl>(net, ...)`. Every named submodule needs a clone(): derive it from torch::nn::Cloneable. The
/// pipeline starts from a copy of the current parameter values and trains the parameters that require gradients; a
/// parameter that two entries share is tied. Layers keep their full names.
///
/// Automatic partitioning treats a function as a layer of its own.
///
/// Throws ScheduleError, which names the entry, for: an unknown name (the message suggests the nearest one), a
/// container or a module class that cannot be called, a submodule inside another entry, an entry on both sides of a
/// boundary, a place other than "front" and "behind", "behind" before the first name, "front" after the last one, a
/// boundary at either end or next to another one, and an entry that takes a different number of tensors than it would
/// receive. Logs a warning about parameters that no entry contains.
template <class... Kinds, class Module>
requires(!std::same_as<Module, ExecutionSequence>) std::unique_ptr<Cell> layer_list(
    const Module& module, const ExecutionSequence& sequence = {}) {
  return list_layers(traits::module_pointer(module), sequence, {callable_kind<Kinds>()...});
}

/// As above, from layer factories only: a process builds the layers of its own stages and never holds the others.
/// Initial values depend on (seed, name), as with a Cell's layers.
///
///   auto network = layer_list({{"in", [] { return torch::nn::Linear(784, 512); }}, {flatten, "front"}, ...
std::unique_ptr<Cell> layer_list(const ExecutionSequence& sequence);

}  // namespace penstock
