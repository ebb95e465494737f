// A network, or a part of one, as one writes it for one device.
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
#include "penstock/model/parameter.h"

namespace penstock {

/// Derive from it, add layers as members, write forward. Cells nest: `add("head", head)` for a member Cell.
/// Not copyable or movable: layers and inner Cells are found by address. Not thread-safe; running one standalone
/// builds its layers.
class Cell {
 public:
  Cell() = default;
  Cell(const Cell&) = delete;
  Cell& operator=(const Cell&) = delete;
  virtual ~Cell() = default;

  /// Write one of these two: for a Cell with one input and one output, or with several.
  virtual Value forward(Value input);
  virtual Values forward_many(Values inputs);

  /// Runs forward: standalone on tensors, or as a part of another Cell's forward.
  Value operator()(const Value& input);
  Values operator()(const Values& inputs);

  /// Inherited by all that is inside: layers, inner Cells, and the functions that its forward calls. Another stage
  /// inside is an error that names both.
  StageAnnotation pipeline_stage;
  /// Inherited likewise, by all that has no annotation of its own: what is inside is run again in the backward pass
  /// instead of keeping its activations, each call of this Cell (as far as it is on one stage) by itself. Where the
  /// whole network is recomputed, each of the Cells that the network calls is run again by itself, as is each layer
  /// between them that holds modules of its own (an encoder layer, a torch::nn::Sequential); other layers and functions
  /// that follow each other between Cells are run again together.
  RecomputeAnnotation recompute;

  // For the network by itself, on one device: as of torch::nn::Module. Layers that are not built yet are built from
  // `seed`. A pipeline made from this Cell afterwards starts from these values and trains those that require gradients.

  /// Parameters by full name, in the order in which layers were added; a tied one at its owner alone.
  std::vector<std::pair<std::string, torch::Tensor>> named_parameters(std::uint64_t seed = 0);
  std::vector<torch::Tensor> parameters(std::uint64_t seed = 0);
  /// Running statistics and the like.
  std::vector<std::pair<std::string, torch::Tensor>> named_buffers(std::uint64_t seed = 0);
  std::vector<torch::Tensor> buffers(std::uint64_t seed = 0);
  /// The modules of the layers by full name.
  std::vector<std::pair<std::string, std::shared_ptr<torch::nn::Module>>> named_modules(std::uint64_t seed = 0);
  /// Whether dropout, batch statistics and the like work as in training (from the beginning on) or as in evaluation: of
  /// all layers inside, those too that are built later. A pipeline switches its own layers by itself.
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return is_training_; }
  /// Parameters and buffers by full name, the names of Pipeline::state(): the tensors themselves.
  std::map<std::string, torch::Tensor> named_state(std::uint64_t seed = 0);
  enum class Missing { refuse, keep };
  /// Copies the values of `state`, as Pipeline::state() or a file of weights has it, into parameters and buffers.
  /// Throws ConfigError, naming the tensor and changing nothing, for a name that the network does not have, for another
  /// shape or dtype, and, unless `missing` is keep, for one that `state` does not have.
  void load_state(const std::map<std::string, torch::Tensor>& state, Missing missing = Missing::refuse);

 protected:
  /// Adds a layer from anything that makes a torch module. Names are unique within a Cell and UTF-8 text without
  /// '.' and control characters; any other name is a ScheduleError.
  template <class Make>
  requires std::invocable<Make&> Layer add(const std::string& name, Make make) {
    return add_factory(name, layer_factory(std::move(make)));
  }
  Layer add_factory(const std::string& name, LayerFactory factory);
  /// Adds a trained tensor from a function that makes its first value; random ones depend on (seed, name) as layers'
  /// do.
  Parameter add_parameter(const std::string& name, std::function<torch::Tensor()> make);
  /// Adds an inner Cell, which must live as long as this one. Once: it can be called as often as needed.
  void add(const std::string& name, Cell& inner);

 private:
  friend class GraphTracer;
  struct Found {
    std::string path;
    const StageAnnotation* from_cell = nullptr;  // the innermost Cell around it that has a stage
    std::string cell_path;
    std::optional<bool> recompute;  // as annotated on it, or else around it
  };
  struct Contents {
    std::map<const LayerRecord*, Found> layers;
    std::map<const Cell*, Found> cells;  // with this one
  };

  /// Every layer inside with its full name.
  void visit(const std::function<void(LayerRecord&, const std::string& path)>& see) const;
  void check_name(const std::string& name) const;
  std::shared_ptr<LayerRecord> add_record(const std::string& name, LayerFactory factory);
  void set_path(const std::string& path);
  /// Finds everything inside; `here` says what is around. Throws ScheduleError for contradicting stages.
  void find_inside(Found here, Contents& found) const;

  std::string path_;  // from the outermost Cell, which has none
  std::vector<std::shared_ptr<LayerRecord>> layers_;
  std::vector<std::pair<std::string, Cell*>> inner_;
  bool is_training_ = true;
};

/// What Cell::load_state does, for tensors by name.
void load_into(const std::map<std::string, torch::Tensor>& own, const std::map<std::string, torch::Tensor>& state,
               Cell::Missing missing);

}  // namespace penstock
