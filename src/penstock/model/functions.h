// Functions for use in Cell::forward between layers. Each call becomes one node of the graph; none has parameters.
// Where one argument is symbolic, a real tensor as the other argument is a constant, equal for every micro-batch: a
// mask, for example. More operations are methods of Value. Shapes follow torch's functions of the same names; errors of
// shapes are torch's (c10::Error), thrown when the node runs.
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
/// Looks up rows of `table` (or slices along `dimension`) by index: int64 indices [a, b, ...] into a table [v, w] give
/// [a, b, ..., w].
Value gather(const Value& table, const Value& indices, std::int64_t dimension = 0);
/// Removes `dimension`, which must have size 1.
Value squeeze(const Value& input, std::int64_t dimension);
/// Removes all of `dimensions`, which must have size 1; they count in the shape of `input`.
Value squeeze(const Value& input, const std::vector<std::int64_t>& dimensions);
Value unsqueeze(const Value& input, std::int64_t dimension);
Value transpose(const Value& input, std::int64_t a, std::int64_t b);
/// The mean over `dimensions`; with `keep_dimensions` they stay with size 1.
Value mean(const Value& input, const std::vector<std::int64_t>& dimensions, bool keep_dimensions = false);
/// Elements begin, begin + step, ... below `end` of one dimension; negative numbers count from its end.
struct Slice {
  std::int64_t dimension = 0;
  std::int64_t begin = 0;
  std::int64_t end = std::numeric_limits<std::int64_t>::max();
  std::int64_t step = 1;
};
Value slice(const Value& input, const Slice& range);
/// Splits into `parts` parts along `dimension`, of sizes as equal as possible.
Values split(const Value& input, int parts, std::int64_t dimension);
/// Concatenates along `dimension`.
Value concat(const Values& inputs, std::int64_t dimension);
/// Changes the shape. Dimension 0, the samples, keeps its size, because that size differs between micro-batches; one of
/// the other sizes may be -1.
Value reshape(const Value& input, const std::vector<std::int64_t>& sizes_after_samples);

/// Which dimension holds the samples in the argument of normal_like and uniform_like.
struct RandomLikeOptions {
  std::int64_t sample_dimension = 0;  // negative numbers count from the last
  bool flattened = false;             // the dimension holds several consecutive entries per sample
};
/// Random numbers, standard normal or uniform in [0, 1), of the shape, dtype and device of `input`, a floating-point
/// value. The contents of `input` are not used and no gradient flows back to it. In a pipeline the numbers of a sample
/// depend only on (pipeline's seed, step, this call, sample): repeatable, and equal for every partition,
/// schedule, number of micro-batches and replicas, and transport. In evaluation and inference, `step` is the number of
/// training steps so far. A VAE draws its sample as `mean + deviation * normal_like(mean)`. A forward on real tensors,
/// without a pipeline, draws from torch's default generator instead. A pipeline's step throws ScheduleError if
/// `sample_dimension` does not hold the samples of the micro-batch, and for integer dtypes.
Value normal_like(const Value& input, const RandomLikeOptions& options = {});
Value uniform_like(const Value& input, const RandomLikeOptions& options = {});

}  // namespace penstock
