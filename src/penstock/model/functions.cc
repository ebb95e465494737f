#include "penstock/model/functions.h"

#include <cmath>
#include <numbers>

#include "penstock/base/error.h"
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

}  // namespace

Value flatten(const Value& input, std::int64_t start) {
  return apply(
      "flatten", [start](const Tensors& x) { return x[0].flatten(start); }, Values{input});
}

Value relu(const Value& input) {
  return apply(
      "relu", [](const Tensors& x) { return torch::relu(x[0]); }, Values{input});
}

Value operator+(const Value& a, const Value& b) {
  return apply_with_constants(
      "add", [](const Tensors& x) { return x[0] + x[1]; }, Values{a, b});
}

Value operator-(const Value& a, const Value& b) {
  return apply_with_constants(
      "sub", [](const Tensors& x) { return x[0] - x[1]; }, Values{a, b});
}

Value operator*(const Value& a, const Value& b) {
  return apply_with_constants(
      "mul", [](const Tensors& x) { return x[0] * x[1]; }, Values{a, b});
}

Value operator/(const Value& a, const Value& b) {
  return apply_with_constants(
      "div", [](const Tensors& x) { return x[0] / x[1]; }, Values{a, b});
}

Value operator-(const Value& a) {
  return apply(
      "neg", [](const Tensors& x) { return -x[0]; }, Values{a});
}

Value with_number(const Value& value, NumberOperation operation, double number) {
  switch (operation) {
    case NumberOperation::plus:
      return apply(
          "add", [number](const Tensors& x) { return x[0] + number; }, Values{value});
    case NumberOperation::minus:
      return apply(
          "sub", [number](const Tensors& x) { return x[0] - number; }, Values{value});
    case NumberOperation::minus_from:
      return apply(
          "sub", [number](const Tensors& x) { return number - x[0]; }, Values{value});
    case NumberOperation::times: return scale(value, number);
    case NumberOperation::over:
      return apply(
          "div", [number](const Tensors& x) { return x[0] / number; }, Values{value});
  }
  throw InternalError("no such operation with a number");
}

Value scale(const Value& input, double factor) {
  return apply(
      "scale", [factor](const Tensors& x) { return x[0] * factor; }, Values{input});
}

Value gelu(const Value& input) {
  return apply(
      "gelu", [](const Tensors& x) { return torch::gelu(x[0]); }, Values{input});
}

Value sigmoid(const Value& input) {
  return apply(
      "sigmoid", [](const Tensors& x) { return torch::sigmoid(x[0]); }, Values{input});
}

Value tanh(const Value& input) {
  return apply(
      "tanh", [](const Tensors& x) { return torch::tanh(x[0]); }, Values{input});
}

Value softmax(const Value& input, std::int64_t dimension) {
  return apply(
      "softmax", [dimension](const Tensors& x) { return torch::softmax(x[0], dimension); }, Values{input});
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
  return apply(
      "unsqueeze", [dimension](const Tensors& x) { return x[0].unsqueeze(dimension); }, Values{input});
}

Value transpose(const Value& input, std::int64_t a, std::int64_t b) {
  return apply(
      "transpose", [a, b](const Tensors& x) { return x[0].transpose(a, b); }, Values{input});
}

Value mean(const Value& input, const std::vector<std::int64_t>& dimensions, bool keep_dimensions) {
  return apply(
      "mean", [dimensions, keep_dimensions](const Tensors& x) { return x[0].mean(dimensions, keep_dimensions); },
      Values{input});
}

Value slice(const Value& input, const Slice& range) {
  return apply(
      "slice", [range](const Tensors& x) { return x[0].slice(range.dimension, range.begin, range.end, range.step); },
      Values{input});
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

}  // namespace penstock
