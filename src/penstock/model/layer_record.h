// What a layer is before and after it is built: its recipe, its annotations, its module and its ties.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

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
/// `parameter` gets the value of `owner`, from now on one memory, and is trained where that one is. Throws ScheduleError for
/// two shapes.
void tie_values(torch::Tensor& parameter, const torch::Tensor& owner);
/// The parameter called `name`; throws ScheduleError, naming `layer` and the parameters that it has, where there is none.
torch::Tensor find_parameter(const torch::nn::Module& module, const std::string& name, const std::string& layer);

/// Parameters and buffers of `other` become those of `owner`: two modules, one set of values, two gradients.
/// Throws ScheduleError when the modules differ in the names or shapes of their tensors.
void share_values(torch::nn::Module& other, const torch::nn::Module& owner);
/// Copies values, and which parameters are trained, instead. Throws like share_values.
void copy_values(torch::nn::Module& to, const torch::nn::Module& from);

}  // namespace penstock
