// The functions that a forward needs between its layers. Each is one node of the graph; none has parameters. A real
// tensor beside a symbol is a constant, the same for every micro-batch: a mask, for example. Value has more as methods.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "penstock/model/value.h"

namespace penstock {

/// [n, a, b, ...] becomes [n, a*b*...] for start = 1.
Value flatten(const Value& input, std::int64_t start = 1);
Value relu(const Value& input);
Value operator+(const Value& a, const Value& b);
Value operator-(const Value& a, const Value& b);
Value operator*(const Value& a, const Value& b);
Value operator/(const Value& a, const Value& b);
Value operator-(const Value& a);
Value scale(const Value& input, double factor);
Value gelu(const Value& input);
Value sigmoid(const Value& input);
Value tanh(const Value& input);
Value softmax(const Value& input, std::int64_t dimension);

struct MatmulOptions {
  bool transpose_a = false;  // the last two dimensions swapped beforehand
  bool transpose_b = false;
};
Value matmul(const Value& a, const Value& b, const MatmulOptions& options = {});
/// Rows of `table`, or slices along `dimension`, by number: indices [a, b, ...] of a table [v, w] give [a, b, ..., w].
Value gather(const Value& table, const Value& indices, std::int64_t dimension = 0);
/// Without `dimension`, which must have size 1.
Value squeeze(const Value& input, std::int64_t dimension);
/// Without all of `dimensions`, which must have size 1; numbers count in the shape of `input`.
Value squeeze(const Value& input, const std::vector<std::int64_t>& dimensions);
Value unsqueeze(const Value& input, std::int64_t dimension);
Value transpose(const Value& input, std::int64_t a, std::int64_t b);
/// The mean over `dimensions`, which stay with size 1 or go.
Value mean(const Value& input, const std::vector<std::int64_t>& dimensions, bool keep_dimensions = false);
/// Elements begin, begin + step, ... before end of one dimension; negative numbers count from its end.
struct Slice {
  std::int64_t dimension = 0;
  std::int64_t begin = 0;
  std::int64_t end = std::numeric_limits<std::int64_t>::max();
  std::int64_t step = 1;
};
Value slice(const Value& input, const Slice& range);
/// Into `parts` parts along `dimension`, sizes as equal as can be.
Values split(const Value& input, int parts, std::int64_t dimension);
/// Joins along `dimension`.
Value concat(const Values& inputs, std::int64_t dimension);
/// The same numbers in another shape. Dimension 0, the samples, stays as it is, for micro-batches differ in it; one of
/// the other sizes may be -1.
Value reshape(const Value& input, const std::vector<std::int64_t>& sizes_after_samples);

/// How normal_like and uniform_like find the samples in a value.
struct RandomLikeOptions {
  std::int64_t sample_dimension = 0;  // negative numbers count from the last
  bool flattened = false;             // it holds several entries of each sample, one sample after the other
};
/// Random numbers of the shape, type and device of `input`, a floating-point value, which is not looked at otherwise:
/// no gradient flows back to it. Standard normal, or uniform in [0, 1). In a pipeline each sample's numbers are a
/// function of (pipeline's seed, step, this call, sample) alone: repeatable, and the same for every partition, schedule,
/// number of micro-batches and replicas, and transport. In evaluation and inference `step` is the number of training
/// steps before. A VAE's sample is `mean + deviation * normal_like(mean)`. A forward on real tensors, without a
/// pipeline, draws from torch's default generator instead. In a step, throws ScheduleError where the samples' dimension
/// does not hold the samples of the micro-batch, and for integers.
Value normal_like(const Value& input, const RandomLikeOptions& options = {});
Value uniform_like(const Value& input, const RandomLikeOptions& options = {});

}  // namespace penstock
