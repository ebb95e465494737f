// The state behind a Layer handle: factory, annotations, module and ties.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "penstock/model/value.h"
#include "penstock/model/weight_source.h"

namespace penstock {

/// A module and its forward.
struct BuiltLayer {
  std::shared_ptr<torch::nn::Module> module;
  TensorFunction forward;
};

/// Makes the module of a layer. `build` runs more than once: once per replica, and once per stage that uses the layer.
struct LayerFactory {
  std::function<BuiltLayer()> build;
  int outputs = 1;  // number of tensors that forward returns
};

/// What a Layer or Cell is annotated with; unset at first.
template <class T>
class Annotation {
 public:
  Annotation() : value_(std::make_shared<std::optional<T>>()) {}
  Annotation(const Annotation&) = default;
  Annotation& operator=(T value) {
    *value_ = value;
    return *this;
  }
  /// Copies the value: after `b.pipeline_stage = a.pipeline_stage;` the two annotations are still independent.
  Annotation& operator=(const Annotation& other) {
    *value_ = *other.value_;
    return *this;
  }
  const std::optional<T>& value() const { return *value_; }

 private:
  friend class Layer;
  std::shared_ptr<std::optional<T>> value_;  // shared by the copies of a Layer
};

/// The stage: `net.layer1.pipeline_stage = 0;`.
using StageAnnotation = Annotation<int>;
/// Whether the backward pass recomputes the activations instead of storing them: `net.block1.recompute = true;`. Unset:
/// the value of the enclosing Cell, or of PipelineOptions::recompute.
using RecomputeAnnotation = Annotation<bool>;

struct LayerRecord;

/// A parameter that other layers are tied to.
struct ParameterOfLayer {
  std::shared_ptr<LayerRecord> layer;
  std::string name;  // within its module
};

/// A layer's module without its values.
struct LayerShapes {
  using Tensors = torch::OrderedDict<std::string, torch::Tensor>;
  Tensors parameters, buffers;  // on the meta device
  std::string text;             // the module as LibTorch prints it
  bool looks_up = false;        // an embedding, which reads a few of its rows
};

/// The state that all copies of a Layer share.
struct LayerRecord {
  std::string name;  // within its Cell
  std::string path;  // full name from the outermost Cell; seeds the initial weights in standalone runs
  LayerFactory factory;
  StageAnnotation stage;
  std::optional<BuiltLayer> standalone = {};          // built when the network first runs on real tensors
  std::map<std::string, ParameterOfLayer> ties = {};  // for each tied parameter of this layer, its owner
  bool is_training = true;                            // mode of `standalone`
  bool is_parameter = false;                          // a raw parameter, not a layer that is called (parameter.h)
  RecomputeAnnotation recompute = {};
  std::shared_ptr<const WeightSource> weights = {};  // of the initial values; null: they depend on the seed
  std::string name_in_weights = {};                  // full name of the layer from the Cell that took `weights`
  std::shared_ptr<const LayerShapes> shapes = {};    // of the factory's module, once shapes_of() was asked
};

/// The owner of `parameter` of `layer`: the end of the chain of ties, or the parameter itself if it is not tied.
ParameterOfLayer owner_of(const std::shared_ptr<LayerRecord>& layer, const std::string& parameter);

/// "encoder.layer1.weight" for `parameter` of a layer whose full name is `path`.
std::string full_name(const LayerRecord& layer, const std::string& path, const std::string& parameter);

/// What determines the initial weights of a layer: nothing else, in particular neither the partition nor the rank.
struct WeightSeed {
  std::uint64_t seed = 0;
  std::string layer;  // its full name, e.g. "encoder.layer1"
};

/// Builds the module with torch's default generator seeded from `seed`, and restores the generator. Thread-safe:
/// holds a process-wide lock. The values are the factory's.
BuiltLayer build_layer(const LayerFactory& factory, const WeightSeed& seed);
/// The layer with the values with which a training starts: from its weight source, if it has one. Tied parameters are
/// left as the factory made them. Throws as take_value().
BuiltLayer initial_layer(const LayerRecord& layer, const WeightSeed& seed);
/// The layer that owns `parameter`, for a layer that is tied to it: `standalone` if that is built, and otherwise a new
/// one, of which only this parameter is read from the source.
BuiltLayer initial_owner(const LayerRecord& layer, const WeightSeed& seed, const std::string& parameter);

/// The shapes of a layer, which only the first call builds: initial values may take long. Thread-safe.
const LayerShapes& shapes_of(LayerRecord& layer);

/// Calls `see` with the full name of every parameter of `module` that is not tied and of every buffer. `path` is the
/// layer's full name.
using SeeValue = std::function<void(const std::string& name, torch::Tensor& value)>;
void for_each_value(const LayerRecord& layer, const std::string& path, torch::nn::Module& module, const SeeValue& see);

/// The layer's module for standalone runs, with its parameters tied; the first call builds it from `seed`.
BuiltLayer& standalone(LayerRecord& layer, std::uint64_t seed);
/// The parameters and buffers of a module, in the order of torch's state_dict(): the parameters of each submodule
/// before its buffers. Returns the tensors themselves, without undefined buffers.
StateDict state_dict_of(const torch::nn::Module& module);
/// Makes `parameter` share the memory of `owner` and its requires_grad. Throws ScheduleError for different shapes.
void tie_values(torch::Tensor& parameter, const torch::Tensor& owner);
/// The parameter called `name`. Throws ScheduleError, which names `layer` and its parameters, if there is none.
torch::Tensor find_parameter(const torch::nn::Module& module, const std::string& name, const std::string& layer);

/// Makes the parameters and buffers of `other` share the memory of `owner`'s; each module keeps its own
/// gradients. Throws ScheduleError if the modules differ in the names or shapes of their tensors.
void share_values(torch::nn::Module& other, const torch::nn::Module& owner);
/// Copies the values and requires_grad of all parameters and buffers. Throws like share_values.
void copy_values(torch::nn::Module& to, const torch::nn::Module& from);

}  // namespace penstock
