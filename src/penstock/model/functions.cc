#include "penstock/model/functions.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/model/graph.h"
#include "penstock/model/random_rows.h"

namespace penstock {
namespace {

/// The Box-Muller transform: two normal numbers from two uniform ones.
void fill_normal(at::philox_engine& bits, float* numbers, std::int64_t count) {
  constexpr double unit = 1.0 / 4294967296.0;
  for (std::int64_t i = 0; i < count; i += 2) {
    const double radius = std::sqrt(-2 * std::log((bits() + 1.0) * unit));
    const double angle = 2 * std::numbers::pi * unit * bits();
    numbers[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < count) numbers[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
}

void fill_uniform(at::philox_engine& bits, float* numbers, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) numbers[i] = static_cast<float>(bits() >> 8) * (1.0f / 16777216.0f);
}

Value random_like(const std::string& name, const Value& input, const RandomLikeOptions& options,
                  void (*fill)(at::philox_engine&, float*, std::int64_t),
                  torch::Tensor (*outside)(const torch::Tensor&)) {
  return apply(
      name,
      [=](const Tensors& x) {
        const RandomPlace* place = RandomPlace::current();
        require<ScheduleError>(x[0].is_floating_point(), name, " takes floating-point values, not ", x[0].scalar_type(),
                               " values: convert the argument");
        if (!place) return outside(x[0]);
        return draw_by_sample(x[0], {options.sample_dimension, options.flattened}, *place, fill, name);
      },
      Values{input});
}

/// A node for a function of one tensor.
template <class F>
Value on_one(const char* name, const Value& input, F f) {
  return apply(name, std::function([f](const Tensors& x) { return f(x[0]); }), Values{input});
}

/// A node for a function of two tensors, of which one may be a constant.
template <class F>
Value on_two(const char* name, const Value& a, const Value& b, F f) {
  return apply_with_constants(name, [f](const Tensors& x) { return f(x[0], x[1]); }, {a, b});
}

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
  const std::string expected = listed(traced, ", ", [](const Size& size) {
    return size.is_number() ? say(size.factor()) : size.factor() == 1 ? "n" : say(size.factor(), "n");
  });
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
  require<ScheduleError>(size > 0, name, " into parts of size ", size, ": pass at least 1");
  return apply(
      name, [=](const Tensors& x) { return x[0].split(size, dimension); }, Values{value},
      static_cast<int>((whole + size - 1) / size));
}

}  // namespace

Value flatten(const Value& input, std::int64_t start) {
  return on_one("flatten", input, [start](const torch::Tensor& x) { return x.flatten(start); });
}

Value relu(const Value& input) {
  return on_one("relu", input, [](const torch::Tensor& x) { return torch::relu(x); });
}

Value operator+(const Value& a, const Value& b) {
  return on_two("add", a, b, [](const torch::Tensor& x, const torch::Tensor& y) { return x + y; });
}

Value operator-(const Value& a, const Value& b) {
  return on_two("sub", a, b, [](const torch::Tensor& x, const torch::Tensor& y) { return x - y; });
}

Value operator*(const Value& a, const Value& b) {
  return on_two("mul", a, b, [](const torch::Tensor& x, const torch::Tensor& y) { return x * y; });
}

Value operator/(const Value& a, const Value& b) {
  return on_two("div", a, b, [](const torch::Tensor& x, const torch::Tensor& y) { return x / y; });
}

Value operator-(const Value& a) {
  return on_one("neg", a, [](const torch::Tensor& x) { return -x; });
}

Value with_number(const Value& value, NumberOperation operation, double number) {
  switch (operation) {
    case NumberOperation::plus: return on_one("add", value, [number](const torch::Tensor& x) { return x + number; });
    case NumberOperation::minus: return on_one("sub", value, [number](const torch::Tensor& x) { return x - number; });
    case NumberOperation::minus_from:
      return on_one("sub", value, [number](const torch::Tensor& x) { return number - x; });
    case NumberOperation::times: return scale(value, number);
    case NumberOperation::over: return on_one("div", value, [number](const torch::Tensor& x) { return x / number; });
  }
  throw InternalError("no such operation with a number");
}

Value scale(const Value& input, double factor) {
  return on_one("scale", input, [factor](const torch::Tensor& x) { return x * factor; });
}

Value gelu(const Value& input) {
  return on_one("gelu", input, [](const torch::Tensor& x) { return torch::gelu(x); });
}

Value sigmoid(const Value& input) {
  return on_one("sigmoid", input, [](const torch::Tensor& x) { return torch::sigmoid(x); });
}

Value tanh(const Value& input) {
  return on_one("tanh", input, [](const torch::Tensor& x) { return torch::tanh(x); });
}

Value softmax(const Value& input, std::int64_t dimension) {
  return on_one("softmax", input, [dimension](const torch::Tensor& x) { return torch::softmax(x, dimension); });
}

Value matmul(const Value& a, const Value& b, const MatmulOptions& options) {
  const auto turned = [](const torch::Tensor& x, bool swap) { return swap ? x.transpose(-2, -1) : x; };
  return apply_with_constants(
      "matmul",
      [options, turned](const Tensors& x) {
        return torch::matmul(turned(x[0], options.transpose_a), turned(x[1], options.transpose_b));
      },
      Values{a, b});
}

Value gather(const Value& table, const Value& indices, std::int64_t dimension) {
  return apply_with_constants(
      "gather",
      [dimension](const Tensors& x) {
        const auto wide = dimension < 0 ? dimension + x[0].dim() : dimension;
        std::vector<std::int64_t> sizes = x[0].sizes().vec();
        sizes.erase(sizes.begin() + wide);
        sizes.insert(sizes.begin() + wide, x[1].sizes().begin(), x[1].sizes().end());
        return x[0].index_select(wide, x[1].reshape({-1}).to(torch::kInt64)).view(sizes);
      },
      Values{table, indices});
}

Value squeeze(const Value& input, std::int64_t dimension) {
  return squeeze(input, std::vector<std::int64_t>{dimension});
}

Value squeeze(const Value& input, const std::vector<std::int64_t>& dimensions) {
  return apply(
      "squeeze",
      [dimensions](const Tensors& x) {
        for (const std::int64_t dimension : dimensions)
          require<ScheduleError>(x[0].size(dimension) == 1, "squeeze of dimension ", dimension, " in a shape of ",
                                 x[0].sizes(), ": only a dimension of size 1 can go");
        return x[0].squeeze(at::IntArrayRef(dimensions));
      },
      Values{input});
}

Value unsqueeze(const Value& input, std::int64_t dimension) {
  return on_one("unsqueeze", input, [dimension](const torch::Tensor& x) { return x.unsqueeze(dimension); });
}

Value transpose(const Value& input, std::int64_t a, std::int64_t b) {
  return on_one("transpose", input, [a, b](const torch::Tensor& x) { return x.transpose(a, b); });
}

Value mean(const Value& input, const std::vector<std::int64_t>& dimensions, bool keep_dimensions) {
  return on_one("mean", input,
                [dimensions, keep_dimensions](const torch::Tensor& x) { return x.mean(dimensions, keep_dimensions); });
}

Value slice(const Value& input, const Slice& range) {
  return on_one("slice", input, [range](const torch::Tensor& x) {
    return x.slice(range.dimension, range.begin, range.end, range.step);
  });
}

Values split(const Value& input, int parts, std::int64_t dimension) {
  return apply(
      "split", [parts, dimension](const Tensors& x) { return x[0].tensor_split(parts, dimension); }, {input}, parts);
}

Value concat(const Values& inputs, std::int64_t dimension) {
  return apply_with_constants(
      "concat", [dimension](const Tensors& x) { return torch::cat(x, dimension); }, inputs);
}

Value reshape(const Value& input, const std::vector<std::int64_t>& sizes_after_samples) {
  return apply(
      "reshape",
      [sizes_after_samples](const Tensors& x) {
        std::vector<std::int64_t> sizes{x[0].size(0)};
        sizes.insert(sizes.end(), sizes_after_samples.begin(), sizes_after_samples.end());
        return x[0].reshape(sizes);
      },
      Values{input});
}

Value normal_like(const Value& input, const RandomLikeOptions& options) {
  return random_like("normal_like", input, options, fill_normal,
                     [](const torch::Tensor& x) { return torch::randn_like(x); });
}

Value uniform_like(const Value& input, const RandomLikeOptions& options) {
  return random_like("uniform_like", input, options, fill_uniform,
                     [](const torch::Tensor& x) { return torch::rand_like(x); });
}

// The part of Value that resembles torch::Tensor: its shape and its methods.

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
  return on_one("permute", *this, [dimensions](const torch::Tensor& x) { return x.permute(dimensions); });
}
Value Value::transpose(std::int64_t a, std::int64_t b) const { return penstock::transpose(*this, a, b); }
Value Value::contiguous() const {
  return on_one("contiguous", *this, [](const torch::Tensor& x) { return x.contiguous(); });
}
Value Value::flatten(std::int64_t start, std::int64_t end) const {
  return on_one("flatten", *this, [start, end](const torch::Tensor& x) { return x.flatten(start, end); });
}
Value Value::squeeze(std::int64_t dimension) const { return penstock::squeeze(*this, dimension); }
Value Value::unsqueeze(std::int64_t dimension) const { return penstock::unsqueeze(*this, dimension); }
Value Value::narrow(std::int64_t dimension, std::int64_t start, std::int64_t length) const {
  return on_one("narrow", *this, [=](const torch::Tensor& x) { return x.narrow(dimension, start, length); });
}
Value Value::select(std::int64_t dimension, std::int64_t index) const {
  return on_one("select", *this, [=](const torch::Tensor& x) { return x.select(dimension, index); });
}
Values Value::split(std::int64_t size, std::int64_t dimension) const {
  return parts_of("split", *this, dimension, size);
}
Values Value::chunk(std::int64_t parts, std::int64_t dimension) const {
  require<ScheduleError>(parts > 0, "chunk into ", parts, " parts: pass at least 1");
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
  return on_one("sum", *this, [=](const torch::Tensor& x) { return x.sum(dimensions, keep_dimensions); });
}
Value Value::to(torch::ScalarType type) const {
  return on_one("to", *this, [type](const torch::Tensor& x) { return x.to(type); });
}
Value Value::operator==(double number) const {
  return on_one("eq", *this, [number](const torch::Tensor& x) { return x.eq(number); });
}
Value Value::operator!=(double number) const {
  return on_one("ne", *this, [number](const torch::Tensor& x) { return x.ne(number); });
}
Value Value::operator<(double number) const {
  return on_one("lt", *this, [number](const torch::Tensor& x) { return x.lt(number); });
}
Value Value::operator>(double number) const {
  return on_one("gt", *this, [number](const torch::Tensor& x) { return x.gt(number); });
}

}  // namespace penstock
