// The argument and result type of Cell::forward: a real tensor in a standalone run, a symbol while the network is
// traced.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "penstock/base/tensor.h"

namespace penstock {

/// Either a number or, for a symbolic value, a multiple of the number of samples. That number differs between
/// micro-batches and is unknown while a network is traced, so such a size cannot convert to a number: the conversion
/// throws ScheduleError. It can be multiplied, divided and passed to view(), reshape() and expand(): write
/// `auto n = x.size(0)`.
class Size {
 public:
  template <std::integral Number>
  Size(Number number) : factor_(static_cast<std::int64_t>(number)) {}  // NOLINT: numbers are sizes
  /// `factor` times the number of samples.
  static Size of_samples(std::int64_t factor);

  operator std::int64_t() const;  // NOLINT: sizes are used as numbers
  bool is_number() const { return !is_of_samples_; }
  /// The number, or the factor of the number of samples.
  std::int64_t factor() const { return factor_; }

  friend Size operator*(const Size& a, const Size& b);
  /// Throws ScheduleError if a multiple of the number of samples is not divisible by `b`.
  friend Size operator/(const Size& a, const Size& b);
  template <std::integral Number>
  friend Size operator*(const Size& a, Number b) {
    return a * Size(b);
  }
  template <std::integral Number>
  friend Size operator*(Number a, const Size& b) {
    return Size(a) * b;
  }
  template <std::integral Number>
  friend Size operator/(const Size& a, Number b) {
    return a / Size(b);
  }

 private:
  std::int64_t factor_ = 0;
  bool is_of_samples_ = false;
};

using Sizes = std::vector<Size>;

using Tensors = std::vector<torch::Tensor>;
using TensorFunction = std::function<Tensors(const Tensors&)>;

class Tracer;
class Cell;
struct LayerRecord;

/// The origin of a value: output `output` of node `node`, or graph input number `output` if node is -1.
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
  /// The tensor of a real value. Throws ScheduleError, which names the layer that made it, for a symbolic value: put
  /// code that reads sizes or contents into apply().
  const torch::Tensor& tensor() const;

  // For a symbolic value these functions need PipelineOptions::example_inputs: the calls so far run on zeros
  // of their shapes (model/graph.h). Without these they throw ScheduleError. Negative dimensions count from the end.
  Size size(std::int64_t dimension) const;
  Sizes sizes() const;
  std::int64_t dim() const;
  torch::ScalarType scalar_type() const;

  // As the methods of torch::Tensor; each call is one node of the graph. More functions: model/functions.h.
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
  /// Splits into parts of `size`, the last one smaller if necessary. `dimension` must not be the samples' dimension.
  Values split(std::int64_t size, std::int64_t dimension) const;
  /// Splits into `parts` parts. `dimension` must not be the samples' dimension.
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
  // Hidden friends, found for Values only: a tensor converts to Value but has operators of its own.
  friend Value operator+(const Value& a, double b) { return with_number(a, NumberOperation::plus, b); }
  friend Value operator+(double a, const Value& b) { return with_number(b, NumberOperation::plus, a); }
  friend Value operator-(const Value& a, double b) { return with_number(a, NumberOperation::minus, b); }
  friend Value operator-(double a, const Value& b) { return with_number(b, NumberOperation::minus_from, a); }
  friend Value operator*(const Value& a, double b) { return with_number(a, NumberOperation::times, b); }
  friend Value operator*(double a, const Value& b) { return with_number(b, NumberOperation::times, a); }
  friend Value operator/(const Value& a, double b) { return with_number(a, NumberOperation::over, b); }

  /// The value of a one-element tensor as bool; throws like tensor().
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

/// The owner of symbolic values: records every call on them as a node of a graph. Implemented in model/graph.cc.
/// At most one exists per thread, and only while trace_graph runs a network's forward.
class Tracer {
 public:
  virtual ~Tracer() = default;
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  /// This thread's tracer; null if no network is being traced.
  static Tracer* running();
  /// The tracer of `values` if all are symbolic, null if all are real. Throws ScheduleError, which names `user`, if
  /// they are mixed.
  static Tracer* of(const std::string& user, const Values& values);
  /// The tracer of any symbolic value among `values`, or null.
  static Tracer* among(const Values& values);

  virtual Values add_layer(const std::shared_ptr<LayerRecord>& layer, const Values& arguments) = 0;
  virtual Values add_function(const std::string& name, const TensorFunction& function, const Values& arguments,
                              int outputs) = 0;
  /// Runs the forward of `cell`; the functions that it calls inherit the stage of `cell`.
  virtual Values run_cell(Cell& cell, const Values& inputs) = 0;
  /// The name of the node that made `value`, for messages: "layer1".
  virtual std::string name_of(const Value& value) const = 0;
  /// Throws ScheduleError if the shape is not known.
  virtual TracedShape shape_of(const Value& value) = 0;

 protected:
  Tracer() = default;
  static void set_running(Tracer* tracer);
  Value symbol(ValueRef ref) { return Value(*this, ref); }
  static ValueRef ref_of(const Value& symbol) { return symbol.ref_; }
};

/// Calls `function`, or records the call as one node of the graph if `inputs` are symbolic. `function` is arbitrary
/// tensor code: it may read sizes and contents and branch on them. It returns `outputs` tensors, must have no trainable
/// parameters, and runs on the threads of several ranks. Throws ScheduleError if symbolic and real values are mixed.
Values apply(const std::string& name, const TensorFunction& function, const Values& inputs, int outputs);
Value apply(const std::string& name, const std::function<torch::Tensor(const Tensors&)>& function,
            const Values& inputs);

/// As apply, but symbolic and real values may be mixed: the real ones become constants of the node, equal for every
/// micro-batch (tables, masks made from sizes). Every process must pass the same constants. Throws ScheduleError for a
/// constant that requires a gradient, because it would not be trained.
Values apply_with_constants(const std::string& name, const TensorFunction& function, const Values& inputs, int outputs);
Value apply_with_constants(const std::string& name, const std::function<torch::Tensor(const Tensors&)>& function,
                           const Values& inputs);

}  // namespace penstock
