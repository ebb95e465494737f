// A layer: a module that is built when and where it is needed, with a name and, if one likes, a stage.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>

#include "penstock/model/value.h"

namespace penstock {

/// A module and a way to call it.
struct BuiltLayer {
  std::shared_ptr<torch::nn::Module> module;
  TensorFunction forward;
};

/// Makes the module of a layer. Built more than once: by every replica, and for every further use of a layer.
struct LayerFactory {
  std::function<BuiltLayer()> build;
  int outputs = 1;  // how many tensors its forward returns
};

/// The stage that a Layer or Cell is annotated with: `net.layer1.pipeline_stage = 0;`.
class StageAnnotation {
 public:
  StageAnnotation() : stage_(std::make_shared<std::optional<int>>()) {}
  StageAnnotation(const StageAnnotation&) = default;
  StageAnnotation& operator=(int stage) {
    *stage_ = stage;
    return *this;
  }
  /// Takes over the number: `b.pipeline_stage = a.pipeline_stage;` leaves two annotations.
  StageAnnotation& operator=(const StageAnnotation& other) {
    *stage_ = *other.stage_;
    return *this;
  }
  const std::optional<int>& value() const { return *stage_; }

 private:
  friend class Layer;
  std::shared_ptr<std::optional<int>> stage_;  // shared by the copies of a Layer
};

/// Whether the activations of a Layer or Cell are computed again for the backward pass instead of being kept:
/// `net.block1.recompute = true;`. Unset: as the Cell around it, or as PipelineOptions::recompute says.
class RecomputeAnnotation {
 public:
  RecomputeAnnotation() : flag_(std::make_shared<std::optional<bool>>()) {}
  RecomputeAnnotation(const RecomputeAnnotation&) = default;
  RecomputeAnnotation& operator=(bool flag) {
    *flag_ = flag;
    return *this;
  }
  /// Takes over the flag and leaves two annotations, as StageAnnotation does.
  RecomputeAnnotation& operator=(const RecomputeAnnotation& other) {
    *flag_ = *other.flag_;
    return *this;
  }
  const std::optional<bool>& value() const { return *flag_; }

 private:
  friend class Layer;
  std::shared_ptr<std::optional<bool>> flag_;  // shared by the copies of a Layer
};

struct LayerRecord;

/// A parameter of a layer: the one that others are tied to.
struct ParameterOfLayer {
  std::shared_ptr<LayerRecord> layer;
  std::string name;  // within its module
};

/// What the copies of a Layer share.
struct LayerRecord {
  std::string name;  // within its Cell
  std::string path;  // from the outermost Cell: what its weights are seeded by where it runs standalone
  LayerFactory factory;
  StageAnnotation stage;
  std::optional<BuiltLayer> standalone = {};          // built when the network runs on real tensors
  std::map<std::string, ParameterOfLayer> ties = {};  // by parameter of this layer: what it is instead of its own
  bool is_training = true;                            // the mode of `standalone`
  bool is_parameter = false;                          // a raw parameter, not a layer that is called (parameter.h)
  RecomputeAnnotation recompute = {};
};

class Parameter;

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

  /// Makes `parameter` of this layer one with `owner_parameter` of `home`: one value, one optimiser state, and a
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

/// The parameter that `parameter` of `layer` is in the end: itself, or what it is tied to.
ParameterOfLayer owner_of(const std::shared_ptr<LayerRecord>& layer, const std::string& parameter);

/// "encoder.layer1.weight" for `parameter` of a layer whose full name is `path`.
std::string full_name(const LayerRecord& layer, const std::string& path, const std::string& parameter);

/// How the initial weights of a layer come about: from (seed, name) alone, whatever the partition and the rank.
struct WeightSeed {
  std::uint64_t seed = 0;
  std::string layer;  // its full name, e.g. "encoder.layer1"
};

/// Builds with the process's default generator seeded from `weights`, under a lock, and restores the generator.
BuiltLayer build_layer(const LayerFactory& factory, const WeightSeed& weights);

/// The layer's module for runs on real tensors, with its parameters tied: built from `seed` the first time.
BuiltLayer& standalone(LayerRecord& layer, std::uint64_t seed);
/// `parameter` gets the value of `home`, from now on one memory, and is trained where that one is. Throws ScheduleError for
/// two shapes.
void tie_values(torch::Tensor& parameter, const torch::Tensor& owner);
/// The parameter called `name`; throws ScheduleError, naming `layer` and the parameters that it has, where there is none.
torch::Tensor find_parameter(const torch::nn::Module& module, const std::string& name, const std::string& layer);

/// Parameters and buffers of `other` become those of `home`: two modules, one set of values, two gradients.
/// Throws ScheduleError when the modules differ in the names or shapes of their tensors.
void share_values(torch::nn::Module& other, const torch::nn::Module& owner);
/// Copies values, and which parameters are trained, instead. Throws like share_values.
void copy_values(torch::nn::Module& to, const torch::nn::Module& from);

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
