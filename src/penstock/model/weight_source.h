// Named tensors from which the layers of a network take their initial values instead of random ones: a weight file, for
// example. A network takes them by Cell::take_weights_from; each rank then reads the tensors of its own layers only.
#pragma once

#include <string>
#include <vector>

#include "penstock/base/tensor.h"

namespace penstock {

/// Derive from it to read weights from elsewhere. Thread-safe: ranks as threads read at the same time.
class WeightSource {
 public:
  WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;
  virtual ~WeightSource() = default;

  /// The tensor called `name`, or an undefined one if there is none. It may be a view of a mapped file, whose memory it
  /// holds, and of another floating-point dtype than the parameter: the layer copies and casts it. Called once for its
  /// shape, and once by every rank that holds the tensor.
  virtual torch::Tensor read(const std::string& name) const = 0;
  /// The names of all tensors.
  virtual std::vector<std::string> names() const = 0;
  /// Where it reads, for messages: the path of a file or a directory.
  virtual std::string place() const = 0;

  /// Whether the tensor `name` may remain although the network has no parameter or buffer of that name.
  virtual bool may_be_unused(const std::string& /*name*/) const { return false; }
  /// Whether the parameter or buffer `name` keeps the value from its layer's factory if the source lacks it.
  virtual bool may_lack(const std::string& /*name*/) const { return false; }
};

/// Whether `into` takes its value from `source`, where it is called `name`; false if the source may lack it. Throws
/// ConfigError if the source has no such tensor, or one of another shape, or of a dtype that is not cast: floating-point
/// dtypes are cast to each other, other dtypes must be equal.
bool takes_value(const torch::Tensor& into, const WeightSource& source, const std::string& name);
/// Copies the value, if takes_value().
void take_value(torch::Tensor& into, const WeightSource& source, const std::string& name);

}  // namespace penstock
