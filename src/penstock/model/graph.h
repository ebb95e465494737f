// A network as a list of nodes in execution order. A plain value: what is partitioned, shown and run.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "penstock/model/cell.h"

namespace penstock {

/// What a parameter of a layer is tied to.
struct OwnerParameter {
  std::shared_ptr<LayerRecord> layer;
  std::string layer_path;  // full name of the layer
  std::string name;        // of the parameter within the layer's module

  std::string full_name() const { return penstock::full_name(*layer, layer_path, name); }
};

/// One call of a layer, or of a function on values; or one use of a raw parameter, which is a layer without inputs.
struct Node {
  std::string name;                    // "layer1", "head.fc"; unique: repeated calls are numbered, "flatten_2"
  std::shared_ptr<LayerRecord> layer;  // empty for a function
  std::string layer_path;              // full name of the layer: the prefix of its parameters' names
  TensorFunction function;             // empty for a layer
  std::vector<ValueRef> inputs;
  int outputs = 1;
  std::optional<int> stage;                      // as annotated on the layer, or on a Cell around the call
  std::optional<bool> recompute = std::nullopt;  // likewise
  /// What it is recomputed together with: the call of the innermost Cell around it that is annotated with recompute, or
  /// else of the outermost Cell within the network. 0 for what the network itself calls.
  int block = 0;
  std::map<std::string, OwnerParameter> ties = {};  // by parameter of the layer: those that are not its own

  bool is_parameter() const { return layer && layer->is_parameter; }
  bool is_layer() const { return layer != nullptr; }
};

struct Graph {
  int inputs = 1;
  std::vector<Node> nodes;
  std::vector<ValueRef> outputs;
  std::vector<std::string> uncalled = {};  // full names of layers that were added, and that forward never used

  /// "layer1", or "input 0" for a graph input: for messages.
  std::string name_of(const ValueRef& value) const;
};

/// What a network is traced with, so that the shapes and dtypes of its values are known: an input each. Their numbers
/// are not looked at, and the number of samples is left open.
struct TraceSample {
  Tensors inputs = {};
  /// The dimension of each input along which samples lie; none: there is none. Dimension 0 where nothing is said.
  std::vector<std::optional<int>> samples_along = {};
};

struct TracedShape;
class TracedShapes;

/// Runs `network.forward` once on symbolic values. Throws ScheduleError for contradicting annotations, a network that
/// mixes real and symbolic values, or one that returns nothing.
Graph trace_graph(Cell& network, int inputs = 1, const TraceSample& sample = {});

/// Collects the nodes while forward runs; lives only that long.
class Tracer {
 public:
  Tracer(const Cell& root, int inputs, const TraceSample& sample = {});
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  /// The one of this thread's trace; null where nothing is traced.
  static Tracer* running();

  Values inputs();
  Values add_layer(const std::shared_ptr<LayerRecord>& layer, const Values& arguments);
  Values add_function(const std::string& name, const TensorFunction& function, const Values& arguments, int outputs);
  /// Runs the forward of `cell`, whose stage its functions inherit.
  Values run_cell(Cell& cell, const Values& inputs);
  Graph finish(const Values& outputs);

  /// "layer1", for messages about `value`.
  std::string name_of(const Value& value) const { return graph_.name_of(value.ref_); }
  /// Throws ScheduleError where it is not known.
  TracedShape shape_of(const Value& value);
  /// The tracer of symbolic `values`, or none where all are real. Throws ScheduleError when they are mixed.
  static Tracer* of(const std::string& user, const Values& values);
  /// The tracer of any symbolic value among `values`.
  static Tracer* among(const Values& values);

 private:
  Values add(Node node, const Values& arguments);
  std::string unique_name(const std::string& wanted);
  const Cell::Found& find(const LayerRecord& layer, const std::string& user) const;
  /// Names those that no node uses, not even as the owner of a tied parameter.
  void find_uncalled();
  /// One node for every use of a raw parameter, right before its user: a use of its own on the user's stage.
  void spread_parameters();

  /// A call of a Cell whose forward runs.
  struct RunningCell {
    const Cell* cell = nullptr;
    int call = 0;  // its number
  };
  int running_block() const;

  Graph graph_;
  std::unique_ptr<TracedShapes> shapes_;
  Cell::Contents contents_;
  std::vector<RunningCell> running_;  // from the network inwards
  int cell_calls_ = 0;
  std::set<const LayerRecord*> called_;
  std::map<std::string, int> uses_;  // of a name; the first uses of the layers' own names are reserved
};

}  // namespace penstock
