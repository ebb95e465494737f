// The functions that a forward needs between its layers. Each is one node of the graph; none has parameters.
#pragma once

#include "penstock/model/value.h"

namespace penstock {

/// [n, a, b, ...] becomes [n, a*b*...] for start = 1.
Value flatten(const Value& input, std::int64_t start = 1);
Value relu(const Value& input);
Value operator+(const Value& a, const Value& b);
Value operator-(const Value& a, const Value& b);
Value operator*(const Value& a, const Value& b);
Value matmul(const Value& a, const Value& b);
/// Joins along `dimension`.
Value concat(const Values& inputs, std::int64_t dimension);

}  // namespace penstock
