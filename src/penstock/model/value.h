// What flows through Cell::forward: a real tensor when a network runs standalone, a symbol while it is traced.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "penstock/base/tensor.h"
#include "penstock/model/size.h"

namespace penstock {

using Tensors = std::vector<torch::Tensor>;
using TensorFunction = std::function<Tensors(const Tensors&)>;

class Tracer;
class Cell;
struct LayerRecord;

/// Where a value comes from: output `output` of node `node`, or graph input number `output` when node is -1.
struct ValueRef {
  int node = -1;
  int output = 0;

  bool is_graph_input() const { return node < 0; }
  friend auto operator<=>(const ValueRef&, const ValueRef&) = default;
};

class Value;
using Values = std::vector<Value>;

enum class NumberOperation { plus, minus, minus_from, times, over };
Value with_number(const Value& value, NumberOperation operation, double number);

class Value {
 public:
  Value(torch::Tensor tensor) : tensor_(std::move(tensor)) {}  // NOLINT: tensors are values, implicitly

  bool is_symbolic() const { return tracer_ != nullptr; }
  /// The tensor. Throws ScheduleError, naming the layer that made it, for a symbolic value: use apply() for code that
  /// needs to look at sizes or contents.
  const torch::Tensor& tensor() const;

  // Of a symbol these are known where the network is traced with a sample (PipelineOptions::sample): the calls so far
  // run with two and three samples of zeros of the sample's shape, a layer built at a time. Otherwise they throw
  // ScheduleError, which says so. Dimensions count from the end where they are negative.
  Size size(std::int64_t dimension) const;
  Sizes sizes() const;
  std::int64_t dim() const;
  torch::ScalarType scalar_type() const;

  // As of torch::Tensor; each is one node of the graph (model/functions.h has more).
  Value view(const Sizes& sizes) const;
  Value reshape(const Sizes& sizes) const;
  Value expand(const Sizes& sizes) const;
  Value permute(const std::vector<std::int64_t>& dimensions) const;
  Value transpose(std::int64_t a, std::int64_t b) const;
  Value contiguous() const;
  Value flatten(std::int64_t start = 0, std::int64_t end = -1) const;
  Value squeeze(std::int64_t dimension) const;
  Value unsqueeze(std::int64_t dimension) const;
  Value narrow(std::int64_t dimension, std::int64_t start, std::int64_t length) const;
  Value select(std::int64_t dimension, std::int64_t index) const;
  /// Into parts of `size`, the last one smaller where it does not go evenly; `dimension` is not that of the samples.
  Values split(std::int64_t size, std::int64_t dimension) const;
  /// Into `parts` parts; as split.
  Values chunk(std::int64_t parts, std::int64_t dimension) const;
  Value matmul(const Value& other) const;
  Value masked_fill(const Value& mask, double value) const;
  Value softmax(std::int64_t dimension) const;
  Value relu() const;
  Value tanh() const;
  Value sigmoid() const;
  Value mean(const std::vector<std::int64_t>& dimensions, bool keep_dimensions = false) const;
  Value sum(const std::vector<std::int64_t>& dimensions, bool keep_dimensions = false) const;
  Value to(torch::ScalarType type) const;
  Value operator==(double number) const;
  Value operator!=(double number) const;
  Value operator<(double number) const;
  Value operator>(double number) const;
  // Inside, so that they are for Values alone: a tensor, which converts to one, has its own.
  friend Value operator+(const Value& a, double b) { return with_number(a, NumberOperation::plus, b); }
  friend Value operator+(double a, const Value& b) { return with_number(b, NumberOperation::plus, a); }
  friend Value operator-(const Value& a, double b) { return with_number(a, NumberOperation::minus, b); }
  friend Value operator-(double a, const Value& b) { return with_number(b, NumberOperation::minus_from, a); }
  friend Value operator*(const Value& a, double b) { return with_number(a, NumberOperation::times, b); }
  friend Value operator*(double a, const Value& b) { return with_number(b, NumberOperation::times, a); }
  friend Value operator/(const Value& a, double b) { return with_number(a, NumberOperation::over, b); }

  /// The truth of a one-element tensor; throws like tensor().
  explicit operator bool() const;

 private:
  friend class Tracer;
  Value(Tracer& tracer, ValueRef ref) : tracer_(&tracer), ref_(ref) {}

  torch::Tensor tensor_;
  Tracer* tracer_ = nullptr;
  ValueRef ref_;
};

struct TracedShape {
  Sizes sizes;
  torch::ScalarType type = torch::ScalarType::Float;
};

/// What symbolic values belong to while a network's forward runs on them: it notes every call as a node of a graph.
/// model/trace_graph.h implements it. At most one exists on a thread, and only as long as forward runs.
class Tracer {
 public:
  virtual ~Tracer() = default;
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  /// This thread's; null where nothing is traced.
  static Tracer* running();
  /// The tracer of symbolic `values`, or null where all are real. Throws ScheduleError when they are mixed, naming
  /// `user`.
  static Tracer* of(const std::string& user, const Values& values);
  /// The tracer of any symbolic value among `values`, or null.
  static Tracer* among(const Values& values);

  virtual Values add_layer(const std::shared_ptr<LayerRecord>& layer, const Values& arguments) = 0;
  virtual Values add_function(const std::string& name, const TensorFunction& function, const Values& arguments,
                              int outputs) = 0;
  /// Runs the forward of `cell`, whose stage its functions inherit.
  virtual Values run_cell(Cell& cell, const Values& inputs) = 0;
  /// "layer1", for messages about `value`.
  virtual std::string name_of(const Value& value) const = 0;
  /// Throws ScheduleError where it is not known.
  virtual TracedShape shape_of(const Value& value) = 0;

 protected:
  Tracer() = default;
  static void set_running(Tracer* tracer);
  Value symbol(ValueRef ref) { return Value(*this, ref); }
  static ValueRef ref_of(const Value& symbol) { return symbol.ref_; }
};

/// Any tensor code as one node of the graph: sizes and data-dependent control flow may live inside `function`.
/// Throws ScheduleError when symbolic and real values are mixed.
Values apply(const std::string& name, const TensorFunction& function, const Values& inputs, int outputs);
Value apply(const std::string& name, const std::function<torch::Tensor(const Tensors&)>& function,
            const Values& inputs);

/// As apply, for functions that work alike on real tensors and symbols: where some of `inputs` are symbols, real ones
/// among them are constants of the node, the same for every micro-batch - masks made from sizes, tables. Every process
/// must make the same. Throws ScheduleError for one that requires a gradient: it would not be trained.
Values apply_with_constants(const std::string& name, const TensorFunction& function, const Values& inputs, int outputs);
Value apply_with_constants(const std::string& name, const std::function<torch::Tensor(const Tensors&)>& function,
                           const Values& inputs);

}  // namespace penstock
