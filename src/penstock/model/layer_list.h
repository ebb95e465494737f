// The front end for networks that exist already as a torch module: its parts, in the order in which they run.
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

#include "penstock/model/callable_kind.h"
#include "penstock/model/cell.h"

namespace penstock {

/// A border between two stages in an execution sequence. With one, the layers before it are annotated with stage 0 and
/// those behind it with stage 1, and so on.
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

/// One entry of an execution sequence: the name of a submodule, a function before or behind one, or a partition marker.
class Execution {
 public:
  /// The name of any submodule that can be called: "fc", "layer1.0.conv1". A name that stands there twice is one layer
  /// that is called twice, with one set of values.
  Execution(const char* name) : name_(name) {}             // NOLINT: sequences are written as plain names
  Execution(std::string name) : name_(std::move(name)) {}  // NOLINT
  Execution(BoundaryMarker) : kind_(Kind::partition) {}    // NOLINT
  /// A layer by a factory, as of Cell::add, instead of a part of a finished module: {"fc", [] { return Linear(8, 2); }}.
  /// The name may stand there again as a plain name: the same layer once more.
  template <class Make>
  requires std::invocable<Make&> Execution(std::string name, Make make)
      : kind_(Kind::factory), name_(std::move(name)), make_(layer_factory(std::move(make))) {}
  /// A function of one, two or three tensors that gives one tensor or a tuple of them. "behind": it runs behind the
  /// entry before it, on that one's stage; "front": in front of the next name, on that one's stage. Functions have no
  /// parameters: what trains belongs into a module. Several at one place run in the order in which they stand.
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

/// layer_list, below, with the kinds of modules that are not torch's own. `kinds` are looked at first.
std::unique_ptr<Cell> list_layers(const std::shared_ptr<torch::nn::Module>& module, const ExecutionSequence& sequence,
                                  std::vector<CallableKind> kinds);

/// A Cell that runs the named parts of `module`, which may be a std::shared_ptr or torch's holder of one, in the order
/// of `sequence`, each on what the one before it gave. Without a sequence: all parts in the order in which they were
/// registered, containers (Sequential, ModuleList, ModuleDict) unrolled.
///
/// The parts of a Sequential can always be called, and so can torch's own kinds of modules; name your own kinds,
/// `layer_list<BlockImpl>(net, ...)`. Every part needs a clone(): derive it from torch::nn::Cloneable. The pipeline
/// starts from a copy of the values that the parts have now, and trains what they train; a parameter that two parts
/// share is tied. Layers keep their full names.
///
/// Where layers are partitioned automatically, a function is a layer of its own.
///
/// Throws ScheduleError that names the entry for: an unknown name (with the nearest), a container or a kind of module that
/// cannot be called, a part inside another part, a part on both sides of a marker, a place other than "front" and
/// "behind", "behind" before the first name, "front" behind the last one, a marker at either end or behind another one,
/// and a part or function that takes another number of values than it would get. Warns about parameters that no entry
/// names.
template <class... Kinds, class Module>
requires(!std::same_as<Module, ExecutionSequence>) std::unique_ptr<Cell> layer_list(
    const Module& module, const ExecutionSequence& sequence = {}) {
  return list_layers(traits::module_pointer(module), sequence, {callable_kind<Kinds>()...});
}

/// The same without a finished module, of layers by their factories alone: a process builds the layers of its own stages
/// and never holds the others. First values follow from (seed, name), as those of a Cell's layers do.
///
///   auto network = layer_list({{"in", [] { return torch::nn::Linear(784, 512); }}, {flatten, "front"}, ...
std::unique_ptr<Cell> layer_list(const ExecutionSequence& sequence);

}  // namespace penstock
