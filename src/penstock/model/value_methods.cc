// The part of Value that resembles torch::Tensor: its shape and its methods.
#include <algorithm>
#include <optional>

#include "penstock/base/error.h"
#include "penstock/model/functions.h"
#include "penstock/model/graph.h"
#include "penstock/model/traced_shapes.h"

namespace penstock {
namespace {

/// The sizes of a value while the network was traced, from which a function finds the number of samples.
using TracedSizes = std::optional<Sizes>;

/// The number of samples in `input`, whose shape was `traced`. Throws ScheduleError if the shapes are incompatible.
std::int64_t samples_in(const torch::Tensor& input, const Sizes& traced, const std::string& user) {
  std::int64_t samples = 0;
  bool fits = input.dim() == static_cast<std::int64_t>(traced.size());
  for (std::size_t d = 0; fits && d < traced.size(); ++d) {
    const std::int64_t size = input.size(static_cast<std::int64_t>(d)), factor = traced[d].factor();
    fits = traced[d].is_number() ? size == factor : size % factor == 0;
    if (fits && !traced[d].is_number()) samples = size / factor;
  }
  std::string expected;
  for (const Size& size : traced)
    expected += (expected.empty() ? "" : ", ") + (size.is_number()     ? say(size.factor())
                                                  : size.factor() == 1 ? std::string("n")
                                                                       : say(size.factor(), "n"));
  require<ScheduleError>(fits, user, " is given a value of shape ", input.sizes(),
                         ", but the network was traced with a sample "
                         "that makes it [",
                         expected,
                         "]: only the number of samples n may change; put what works on other "
                         "shapes into penstock::apply(name, function, {values})");
  return samples;
}

std::vector<std::int64_t> sizes_for(const torch::Tensor& input, const Sizes& sizes, const TracedSizes& traced,
                                    const std::string& user) {
  const std::int64_t samples = traced ? samples_in(input, *traced, user) : 0;
  std::vector<std::int64_t> numbers;
  for (const Size& size : sizes) numbers.push_back(size.is_number() ? size.factor() : size.factor() * samples);
  return numbers;
}

bool has_samples(const Sizes& sizes) {
  return std::any_of(sizes.begin(), sizes.end(), [](const Size& size) { return !size.is_number(); });
}

Value shaped(const char* name, const Value& value, const Sizes& sizes,
             const std::function<torch::Tensor(const torch::Tensor&, const std::vector<std::int64_t>&)>& shape) {
  TracedSizes traced;
  if (has_samples(sizes)) {
    traced = value.sizes();
    require<ScheduleError>(has_samples(*traced), name,
                           " is given the number of samples, but its value has no dimension of "
                           "samples: put this into penstock::apply(name, function, {values})");
  }
  const std::string user = name;
  return apply(
      name, [=](const Tensors& x) { return shape(x[0], sizes_for(x[0], sizes, traced, user)); }, Values{value});
}

/// Splits into a number of parts that is known while the network is traced.
Values parts_of(const char* name, const Value& value, std::int64_t dimension, std::int64_t size) {
  const auto whole = static_cast<std::int64_t>(value.size(dimension));
  require<ScheduleError>(size > 0, name, " into parts of size ", size, ": give at least 1");
  return apply(
      name, [=](const Tensors& x) { return x[0].split(size, dimension); }, Values{value},
      static_cast<int>((whole + size - 1) / size));
}

}  // namespace

Sizes Value::sizes() const {
  if (is_symbolic()) return tracer_->shape_of(*this).sizes;
  return Sizes(tensor_.sizes().begin(), tensor_.sizes().end());
}

Size Value::size(std::int64_t dimension) const {
  const Sizes all = sizes();
  const auto dimensions = static_cast<std::int64_t>(all.size());
  require<ScheduleError>(dimension >= -dimensions && dimension < dimensions, "forward asks for the size of dimension ",
                         dimension, " of a value with ", dimensions, " dimensions");
  return all[static_cast<std::size_t>(dimension < 0 ? dimension + dimensions : dimension)];
}

std::int64_t Value::dim() const { return static_cast<std::int64_t>(sizes().size()); }

torch::ScalarType Value::scalar_type() const {
  return is_symbolic() ? tracer_->shape_of(*this).type : tensor_.scalar_type();
}

Value Value::view(const Sizes& sizes) const {
  return shaped("view", *this, sizes, [](const torch::Tensor& x, const auto& numbers) { return x.view(numbers); });
}
Value Value::reshape(const Sizes& sizes) const {
  return shaped("reshape", *this, sizes,
                [](const torch::Tensor& x, const auto& numbers) { return x.reshape(numbers); });
}
Value Value::expand(const Sizes& sizes) const {
  return shaped("expand", *this, sizes, [](const torch::Tensor& x, const auto& numbers) { return x.expand(numbers); });
}
Value Value::permute(const std::vector<std::int64_t>& dimensions) const {
  return apply(
      "permute", [dimensions](const Tensors& x) { return x[0].permute(dimensions); }, Values{*this});
}
Value Value::transpose(std::int64_t a, std::int64_t b) const { return penstock::transpose(*this, a, b); }
Value Value::contiguous() const {
  return apply(
      "contiguous", [](const Tensors& x) { return x[0].contiguous(); }, Values{*this});
}
Value Value::flatten(std::int64_t start, std::int64_t end) const {
  return apply(
      "flatten", [start, end](const Tensors& x) { return x[0].flatten(start, end); }, Values{*this});
}
Value Value::squeeze(std::int64_t dimension) const { return penstock::squeeze(*this, dimension); }
Value Value::unsqueeze(std::int64_t dimension) const { return penstock::unsqueeze(*this, dimension); }
Value Value::narrow(std::int64_t dimension, std::int64_t start, std::int64_t length) const {
  return apply(
      "narrow", [=](const Tensors& x) { return x[0].narrow(dimension, start, length); }, Values{*this});
}
Value Value::select(std::int64_t dimension, std::int64_t index) const {
  return apply(
      "select", [=](const Tensors& x) { return x[0].select(dimension, index); }, Values{*this});
}
Values Value::split(std::int64_t size, std::int64_t dimension) const {
  return parts_of("split", *this, dimension, size);
}
Values Value::chunk(std::int64_t parts, std::int64_t dimension) const {
  require<ScheduleError>(parts > 0, "chunk into ", parts, " parts: give at least 1");
  const auto whole = static_cast<std::int64_t>(size(dimension));
  return parts_of("chunk", *this, dimension, (whole + parts - 1) / parts);
}
Value Value::matmul(const Value& other) const { return penstock::matmul(*this, other); }
Value Value::masked_fill(const Value& mask, double value) const {
  return apply_with_constants("masked_fill", [value](const Tensors& x) { return x[0].masked_fill(x[1], value); },
                              {*this, mask});
}
Value Value::softmax(std::int64_t dimension) const { return penstock::softmax(*this, dimension); }
Value Value::relu() const { return penstock::relu(*this); }
Value Value::tanh() const { return penstock::tanh(*this); }
Value Value::sigmoid() const { return penstock::sigmoid(*this); }
Value Value::mean(const std::vector<std::int64_t>& dimensions, bool keep_dimensions) const {
  return penstock::mean(*this, dimensions, keep_dimensions);
}
Value Value::sum(const std::vector<std::int64_t>& dimensions, bool keep_dimensions) const {
  return apply(
      "sum", [=](const Tensors& x) { return x[0].sum(dimensions, keep_dimensions); }, Values{*this});
}
Value Value::to(torch::ScalarType type) const {
  return apply(
      "to", [type](const Tensors& x) { return x[0].to(type); }, Values{*this});
}
Value Value::operator==(double number) const {
  return apply(
      "eq", [number](const Tensors& x) { return x[0].eq(number); }, Values{*this});
}
Value Value::operator!=(double number) const {
  return apply(
      "ne", [number](const Tensors& x) { return x[0].ne(number); }, Values{*this});
}
Value Value::operator<(double number) const {
  return apply(
      "lt", [number](const Tensors& x) { return x[0].lt(number); }, Values{*this});
}
Value Value::operator>(double number) const {
  return apply(
      "gt", [number](const Tensors& x) { return x[0].gt(number); }, Values{*this});
}

}  // namespace penstock
