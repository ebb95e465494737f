// Base class for networks and parts of networks, written as for one device.
#pragma once

#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/model/layer.h"

namespace penstock {

/// To define a network, derive from Cell, add layers as members and override forward. Cells nest: `add("head", head)`
/// registers a member Cell. Not copyable or movable: layers and inner Cells are found by address. Not thread-safe: a
/// standalone run builds layers.
class Cell {
 public:
  Cell() = default;
  Cell(const Cell&) = delete;
  Cell& operator=(const Cell&) = delete;
  virtual ~Cell() = default;

  /// Override forward for one input and one output, or forward_many for several of either. Both run once per Pipeline
  /// with symbolic values (trace_graph), or with real tensors when the Cell runs standalone.
  virtual Value forward(Value input);
  virtual Values forward_many(Values inputs);

  /// Runs forward: standalone on real tensors, or as a part of another Cell's forward.
  Value operator()(const Value& input);
  Values operator()(const Values& inputs);

  /// The stage of everything inside this Cell: layers, inner Cells, and the functions that its forward calls. A
  /// different annotation inside is a ScheduleError that names both.
  StageAnnotation pipeline_stage;
  /// Whether the backward pass recomputes the activations of this Cell instead of storing them (activation
  /// checkpointing). Applies to everything inside that has no annotation of its own. The unit of recomputation is one
  /// call of this Cell, or the part of it on one stage. If the whole network is recomputed, the units are: each Cell
  /// that the network calls, each layer between them whose module has submodules (an encoder layer, a
  /// torch::nn::Sequential), and each run of other layers and functions between those.
  RecomputeAnnotation recompute;
  /// Whether an automatic partition keeps everything that this Cell's forward calls on one stage: set it on the repeated
  /// blocks of a deep network. The outermost marked Cell counts. Annotations and named partitions may still cut inside.
  bool is_block = false;

  /// Annotates the Cells and layers with these full names with recompute. Throws ScheduleError for a name that nothing
  /// in this Cell has.
  void recompute_named(const std::vector<std::string>& names);

  /// Replaces how each layer inside is made by the result of `change`, which gets the layer's full name: to add
  /// adapters, for example. Throws ScheduleError if a layer is built already.
  void change_layers(const std::function<LayerFactory(const std::string& name, LayerFactory factory)>& change);

  // The functions below serve the network on one device, as torch::nn::Module's do. Layers that are not built
  // yet are built with initial values from `seed`; `seed` has no effect on layers that are built already. A Pipeline
  // that is made from this Cell afterwards starts from these values and trains the parameters that require gradients.

  /// Parameters by full name, in the order in which layers were added; a tied parameter appears once, under its owner.
  std::vector<std::pair<std::string, torch::Tensor>> named_parameters(std::uint64_t seed = 0);
  std::vector<torch::Tensor> parameters(std::uint64_t seed = 0);
  /// Buffers by full name: running statistics and the like.
  std::vector<std::pair<std::string, torch::Tensor>> named_buffers(std::uint64_t seed = 0);
  std::vector<torch::Tensor> buffers(std::uint64_t seed = 0);
  /// The modules of all layers by full name.
  std::vector<std::pair<std::string, std::shared_ptr<torch::nn::Module>>> named_modules(std::uint64_t seed = 0);
  /// Switches all layers inside, including those that are built later, to training mode (the default) or evaluation
  /// mode, for standalone runs. A pipeline switches the mode of its own layers itself.
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return is_training_; }
  /// Parameters and buffers by full name, with the names and in the order of Pipeline::state_dict(). Returns the
  /// tensors themselves, not copies.
  StateDict state_dict(std::uint64_t seed = 0);
  /// What load_state_dict does with a tensor of the network that `state` does not contain: throw, or leave it as it is.
  enum class Missing { refuse, keep };
  /// Copies the values of `state` (from Pipeline::state_dict() or a weight file) into parameters and buffers. Throws
  /// ConfigError, which names the tensor, and changes nothing, for a name that the network does not have, for a
  /// different shape or dtype, and, with Missing::refuse, for a tensor of the network that `state` does not contain.
  void load_state_dict(const StateDict& state, Missing missing = Missing::refuse);
  /// Layers that are built later, for pipelines and for standalone runs, take their values from `source` by their full
  /// names within this Cell; each rank of a pipeline reads the tensors of its own layers, and a tied parameter is read
  /// under its owner's name. Layers that are built already keep their values. Throws ConfigError, and changes nothing,
  /// if the source lacks a tensor or has one of another shape or dtype (takes_value()), or one that no layer takes.
  void take_weights_from(std::shared_ptr<const WeightSource> source);

 protected:
  /// Adds a layer. `make` takes no arguments and returns a torch module: `[] { return torch::nn::Linear(784, 512); }`.
  /// Names are unique within a Cell and UTF-8 text without '.' and control characters; any other name is a
  /// ScheduleError.
  template <class Make>
  requires std::invocable<Make&> Layer add(const std::string& name, Make make) {
    return add_factory(name, layer_factory(std::move(make)));
  }
  Layer add_factory(const std::string& name, LayerFactory factory);
  /// Adds a trainable tensor whose initial value is the result of `make`. Random initial values depend on (seed, name),
  /// as a layer's do.
  Parameter add_parameter(const std::string& name, std::function<torch::Tensor()> make);
  /// Adds an inner Cell, which must live as long as this one. Add it once, even if forward calls it several times.
  void add(const std::string& name, Cell& inner);

 private:
  friend class GraphTracer;
  struct Found {
    std::string path;
    const StageAnnotation* from_cell = nullptr;  // of the innermost enclosing Cell that is annotated
    std::string cell_path;
    std::optional<bool> recompute;  // the innermost annotation on it or around it
    std::size_t number = 0;         // of a layer, in the order of visit()
  };
  struct Contents {
    std::map<const LayerRecord*, Found> layers;
    std::map<const Cell*, Found> cells;  // including this Cell
  };

  /// Calls `see` for every layer inside, with its full name.
  void visit(const std::function<void(LayerRecord&, const std::string& path)>& see) const;
  void check_name(const std::string& name) const;
  std::shared_ptr<LayerRecord> add_record(const std::string& name, LayerFactory factory);
  void set_path(const std::string& path);
  void set_weights(const std::shared_ptr<const WeightSource>& source, const std::string& name);
  /// Collects everything inside; `here` holds the annotations from outside. Throws ScheduleError for contradicting
  /// stages.
  void find_inside(Found here, Contents& found) const;

  std::string path_;  // full name; empty for the outermost Cell
  std::vector<std::shared_ptr<LayerRecord>> layers_;
  std::vector<std::pair<std::string, Cell*>> inner_;
  bool is_training_ = true;
  std::shared_ptr<const WeightSource> weights_;
  std::string name_in_weights_;  // full name from the Cell that took weights_
};

/// The implementation of Cell::load_state_dict: copies `state` into the tensors of `own`, by name.
void load_into(const StateDict& own, const StateDict& state, Cell::Missing missing);

/// Returns a Cell whose layers are the modules of `modules`, under torch's names for them: "0", "1", ... or the names
/// they were given. The pipeline starts from a copy of the modules' values and trains the parameters that require
/// gradients. A module that occurs twice is one layer that is called twice. Throws ScheduleError if `modules` is empty.
std::unique_ptr<Cell> from_sequential(const torch::nn::Sequential& modules);

}  // namespace penstock
