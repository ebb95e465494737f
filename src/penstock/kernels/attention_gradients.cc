#include "penstock/kernels/attention_gradients.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <vector>

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>

#include "penstock/kernels/bf16_product.h"
#include "penstock/kernels/exponential.h"
#include "penstock/kernels/for_each_processor.h"

namespace penstock::kernels {
namespace {

using c10::BFloat16;

constexpr std::int64_t most_rows = 128;  // of a block of queries

/// What one head has at each position.
template <class Number>
struct Positions {
  Number* first;
  std::int64_t distance;  // elements from one position to the next

  Number* at(std::int64_t position) const { return first + position * distance; }
  Bf16Matrix from(std::int64_t position) const { return {at(position), distance}; }
  Bf16Matrix transposed() const { return {first, distance, /*is_transposed=*/true}; }
};

/// of_x is the gradient of x.
struct Head {
  std::int64_t length, size;  // positions, and numbers of each
  float scale;
  Positions<const BFloat16> queries, keys, values, output, of_output;
  Positions<const float> sums;
  Positions<BFloat16> of_queries, of_keys, of_values;
};

/// Memory for one head after the other, row by row.
struct Scratch {
  std::vector<float> scores, of_weights;     // a block's rows of Q K^T and dP
  std::vector<BFloat16> weights, of_scores;  // P and scale dS
  std::vector<float> of_queries;             // a block's
  std::vector<float> of_keys, of_values;     // sums over the blocks

  Scratch(std::int64_t length, std::int64_t size) {
    const auto rows = static_cast<std::size_t>(std::min(length, most_rows));
    const auto all = static_cast<std::size_t>(length), numbers = static_cast<std::size_t>(size);
    for (std::vector<float>* each : {&scores, &of_weights}) each->resize(rows * all);
    for (std::vector<BFloat16>* each : {&weights, &of_scores}) each->resize(rows * all);
    of_queries.resize(rows * numbers);
    for (std::vector<float>* each : {&of_keys, &of_values}) each->resize(all * numbers);
  }
};

/// One row of the block. Numbers from `visible` to `count` belong to later positions.
struct Row {
  float* scores;
  float* of_weights;
  BFloat16* weights;
  BFloat16* of_scores;
  std::int64_t visible, count;
  float scale, sum, mean;  // mean: rowsum(dO O)
};

PENSTOCK_FOR_EACH_PROCESSOR void compute(const Row& row) {
  constexpr float least = -87;
  for (std::int64_t i = 0; i < row.visible; ++i) {
    const float exponent = row.scores[i] * row.scale - row.sum;
    const float weight = exponential(exponent > least ? exponent : least);
    row.scores[i] = weight;
    row.of_weights[i] = weight * (row.of_weights[i] - row.mean) * row.scale;
  }
  for (std::int64_t i = 0; i < row.visible; ++i) row.weights[i] = row.scores[i];
  for (std::int64_t i = 0; i < row.visible; ++i) row.of_scores[i] = row.of_weights[i];
  std::fill(row.weights + row.visible, row.weights + row.count, BFloat16(0));
  std::fill(row.of_scores + row.visible, row.of_scores + row.count, BFloat16(0));
}

/// The sum of a[i] b[i], in parts that a register holds.
PENSTOCK_FOR_EACH_PROCESSOR float dot(const BFloat16* a, const BFloat16* b, std::int64_t size) {
  constexpr std::int64_t part = 16;
  std::array<float, part> sums{};
  std::int64_t i = 0;
  for (; i + part <= size; i += part)
    for (std::int64_t k = 0; k < part; ++k)
      sums[static_cast<std::size_t>(k)] += static_cast<float>(a[i + k]) * static_cast<float>(b[i + k]);
  for (; i < size; ++i) sums[0] += static_cast<float>(a[i]) * static_cast<float>(b[i]);
  return std::accumulate(sums.begin(), sums.end(), 0.0F);
}

/// Writes `count` positions of a head.
PENSTOCK_FOR_EACH_PROCESSOR void write(const float* from, std::int64_t count, const Head& head,
                                       const Positions<BFloat16>& into) {
  for (std::int64_t position = 0; position < count; ++position) {
    BFloat16* const numbers = into.at(position);
    for (std::int64_t i = 0; i < head.size; ++i) numbers[i] = from[position * head.size + i];
  }
}

/// The queries from `begin` to `end`, which see the keys before `end`.
void compute_block(const Head& head, std::int64_t begin, std::int64_t end, Scratch& scratch) {
  const std::int64_t rows = end - begin, size = head.size;
  add_bf16_product({rows, end, size}, head.queries.from(begin), head.keys.transposed(),
                   {scratch.scores.data(), end, /*is_first=*/true});
  add_bf16_product({rows, end, size}, head.of_output.from(begin), head.values.transposed(),
                   {scratch.of_weights.data(), end, /*is_first=*/true});
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t position = begin + r, place = r * end;
    compute({scratch.scores.data() + place, scratch.of_weights.data() + place, scratch.weights.data() + place,
             scratch.of_scores.data() + place, position + 1, end, head.scale, *head.sums.at(position),
             dot(head.output.at(position), head.of_output.at(position), size)});
  }
  const Bf16Matrix of_scores{scratch.of_scores.data(), end};
  add_bf16_product({rows, size, end}, of_scores, head.keys.from(0),
                   {scratch.of_queries.data(), size, /*is_first=*/true});
  write(scratch.of_queries.data(), rows, head, {head.of_queries.at(begin), head.of_queries.distance});
  const Fp32Sum of_keys{scratch.of_keys.data(), size, /*is_first=*/false};
  const Fp32Sum of_values{scratch.of_values.data(), size, /*is_first=*/false};
  add_bf16_product({end, size, rows}, {scratch.of_scores.data(), end, /*is_transposed=*/true}, head.queries.from(begin),
                   of_keys);
  add_bf16_product({end, size, rows}, {scratch.weights.data(), end, /*is_transposed=*/true}, head.of_output.from(begin),
                   of_values);
}

void compute(const Head& head, Scratch& scratch) {
  std::ranges::fill(scratch.of_keys, 0.0F);
  std::ranges::fill(scratch.of_values, 0.0F);
  for (std::int64_t begin = 0; begin < head.length; begin += most_rows)
    compute_block(head, begin, std::min(begin + most_rows, head.length), scratch);
  write(scratch.of_keys.data(), head.length, head, head.of_keys);
  write(scratch.of_values.data(), head.length, head, head.of_values);
}

}  // namespace

bool has_attention_gradients(const AttentionInputs& inputs, const torch::Tensor& output_gradient) {
  const auto& [queries, keys, values] = inputs;
  return has_bf16_product() && queries.numel() > 0 && queries.sizes() == keys.sizes() &&
         queries.sizes() == values.sizes() &&
         std::ranges::all_of(std::initializer_list<torch::Tensor>{queries, keys, values, output_gradient},
                             [](const torch::Tensor& each) {
                               return each.is_cpu() && each.scalar_type() == at::kBFloat16 && each.stride(3) == 1 &&
                                      each.stride(2) >= each.size(3);
                             });
}

void attention_gradients(const AttentionInputs& inputs, const Attended& attended, const torch::Tensor& output_gradient,
                         double scale, const AttentionInputs& gradients) {
  const std::int64_t heads = inputs.queries.size(1), length = inputs.queries.size(2), size = inputs.queries.size(3);
  const auto head = [&](std::int64_t number) {
    const auto place_in = [&](const torch::Tensor& of) {
      return number / heads * of.stride(0) + number % heads * of.stride(1);
    };
    const auto read = [&](const torch::Tensor& of) {
      return Positions<const BFloat16>{of.const_data_ptr<BFloat16>() + place_in(of), of.stride(2)};
    };
    const auto written = [&](const torch::Tensor& of) {
      return Positions<BFloat16>{of.data_ptr<BFloat16>() + place_in(of), of.stride(2)};
    };
    const torch::Tensor& sums = attended.sums;
    return Head{.length = length,
                .size = size,
                .scale = static_cast<float>(scale),
                .queries = read(inputs.queries),
                .keys = read(inputs.keys),
                .values = read(inputs.values),
                .output = read(attended.mixed),
                .of_output = read(output_gradient),
                .sums = {sums.const_data_ptr<float>() + place_in(sums), sums.stride(2)},
                .of_queries = written(gradients.queries),
                .of_keys = written(gradients.keys),
                .of_values = written(gradients.values)};
  };
  at::parallel_for(0, inputs.queries.size(0) * heads, 1, [&](std::int64_t begin, std::int64_t end) {
    Scratch scratch(length, size);
    for (std::int64_t number = begin; number < end; ++number) compute(head(number), scratch);
  });
}

}  // namespace penstock::kernels
