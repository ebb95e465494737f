// A trainable tensor of a Cell that belongs to no layer.
#pragma once

#include "penstock/model/layer_record.h"

namespace penstock {

/// A handle, made by Cell::add_parameter; copies refer to the same parameter. It has no stage of its own: it is held on
/// every stage that uses value(). If several stages use it, it is tied: one value, and a gradient that is the sum over
/// all uses. It is not sent along with micro-batches.
class Parameter {
 public:
  /// The parameter as a value: symbolic while the network is traced, the tensor itself in a standalone run.
  Value value() const;

 private:
  friend class Cell;
  friend class Layer;
  explicit Parameter(std::shared_ptr<LayerRecord> record) : record_(std::move(record)) {}

  std::shared_ptr<LayerRecord> record_;
};

/// Makes a module whose only parameter is the result of `make`, and whose forward returns it.
LayerFactory parameter_factory(std::function<torch::Tensor()> make);
/// The name of that parameter within its module.
inline constexpr const char* raw_parameter = "value";

}  // namespace penstock
