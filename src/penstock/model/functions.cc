#include "penstock/model/functions.h"

namespace penstock {

Value flatten(const Value& input, std::int64_t start) {
  return apply("flatten", [start](const Tensors& x) { return x[0].flatten(start); }, Values{input});
}

Value relu(const Value& input) {
  return apply("relu", [](const Tensors& x) { return torch::relu(x[0]); }, Values{input});
}

Value operator+(const Value& a, const Value& b) {
  return apply("add", [](const Tensors& x) { return x[0] + x[1]; }, Values{a, b});
}

Value operator-(const Value& a, const Value& b) {
  return apply("sub", [](const Tensors& x) { return x[0] - x[1]; }, Values{a, b});
}

Value operator*(const Value& a, const Value& b) {
  return apply("mul", [](const Tensors& x) { return x[0] * x[1]; }, Values{a, b});
}

Value matmul(const Value& a, const Value& b) {
  return apply("matmul", [](const Tensors& x) { return torch::matmul(x[0], x[1]); }, Values{a, b});
}

Value concat(const Values& inputs, std::int64_t dimension) {
  return apply("concat", [dimension](const Tensors& x) { return torch::cat(x, dimension); }, inputs);
}

}  // namespace penstock
