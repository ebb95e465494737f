// A trained tensor of one's own, outside of any layer.
#pragma once

#include "penstock/model/layer_record.h"

namespace penstock {

/// A handle, made by Cell::add_parameter; copies are the same parameter. It has no stage of its own: it lives wherever
/// value() is used. Used on several stages it is tied: one value, and a gradient that is the sum over all uses. Nothing
/// of it travels with the micro-batches.
class Parameter {
 public:
  /// The parameter as a value: a symbol while the network is traced, the tensor itself where it runs standalone.
  Value value() const;

 private:
  friend class Cell;
  friend class Layer;
  explicit Parameter(std::shared_ptr<LayerRecord> record) : record_(std::move(record)) {}

  std::shared_ptr<LayerRecord> record_;
};

/// A module that holds what `make` gives as its only parameter and returns it.
LayerFactory parameter_factory(std::function<torch::Tensor()> make);
/// What that parameter is called within its module.
inline constexpr const char* raw_parameter = "value";

}  // namespace penstock
