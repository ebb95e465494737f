#include "penstock/model/random_rows.h"

#include "penstock/base/device_copy.h"
#include "penstock/base/error.h"

namespace penstock {

namespace {

/// The number of samples along `dimension` of `like`; throws if the micro-batch has another number.
std::int64_t samples_in(const torch::Tensor& like, std::int64_t dimension, bool flattened, const RandomPlace& place,
                        std::string_view what) {
  const std::int64_t entries = like.dim() == 0 ? 1 : like.size(dimension);
  if (place.samples == 0) return entries;
  if (flattened) {
    require<ScheduleError>(entries % place.samples == 0, "'", place.call, "': ", what, " finds ", entries,
                           " entries in dimension ", dimension, " of shape ", like.sizes(), ", no multiple of the ",
                           place.samples,
                           " samples of the micro-batch: flatten the samples' dimension with others only");
    return place.samples;
  }
  require<ScheduleError>(
      entries == place.samples, "'", place.call, "': ", what, " draws by sample, but dimension ", dimension,
      " of shape ", like.sizes(), " has ", entries, " entries and the micro-batch ", place.samples,
      " samples: name the samples' dimension (sample_dimension), say so if samples ",
      "and others were flattened into it (flattened), or take torch's own, which draws for the whole ", "micro-batch");
  return entries;
}

/// The numbers of a draw before they have the shape of `like`: a row for each sample.
struct Rows {
  std::int64_t samples = 0;
  std::int64_t width = 0;      // numbers per sample
  std::int64_t dimension = 0;  // of `like`: the samples' dimension
};

Rows rows_of(const torch::Tensor& like, const SampleDimension& where, const RandomPlace& place, std::string_view what) {
  const std::int64_t dimensions = std::max<std::int64_t>(like.dim(), 1);
  require<ScheduleError>(where.dimension >= -dimensions && where.dimension < dimensions, "'", place.call, "': ", what,
                         " got sample_dimension = ", where.dimension, ", but the tensor has shape ", like.sizes());
  const std::int64_t dimension = where.dimension < 0 ? where.dimension + dimensions : where.dimension;
  const std::int64_t samples = samples_in(like, dimension, where.flattened, place, what);
  return {samples, samples == 0 ? 0 : like.numel() / samples, dimension};
}

/// `numbers`, [samples, width], in the shape and dtype of `like`.
torch::Tensor shaped_like(const torch::Tensor& like, const torch::Tensor& numbers, const Rows& rows) {
  if (rows.dimension == 0) return numbers.view(like.sizes()).to(like.scalar_type());
  std::vector<std::int64_t> sizes = like.sizes().vec();  // the samples' dimension first
  sizes.erase(sizes.begin() + rows.dimension);
  sizes.insert(sizes.begin(), like.size(rows.dimension));
  return numbers.view(sizes).movedim(0, rows.dimension).contiguous().to(like.scalar_type());
}

torch::Tensor filled_on_host(const Rows& rows, const RandomPlace& place, const FillRow& fill) {
  torch::Tensor numbers = torch::empty({rows.samples, rows.width}, torch::kFloat32);
  const std::uint64_t key = key_of(place, RandomPlace::next_draw());
  for (std::int64_t row = 0; row < rows.samples; ++row) {
    at::philox_engine bits(key, static_cast<std::uint64_t>(place.first_sample + row));
    fill(bits, numbers.data_ptr<float>() + row * rows.width, rows.width);
  }
  return numbers;
}

/// The high and the low half of the product of 32-bit numbers, held by 64-bit ones. A product that exceeds 2^63 is
/// negative as a number, and has the same bits.
struct Product {
  torch::Tensor high, low;
};

constexpr std::int64_t half = 0xffffffff;

Product product(const torch::Tensor& numbers, std::int64_t factor) {
  const torch::Tensor whole = numbers * factor;
  return {whole.bitwise_right_shift(32).bitwise_and_(half), whole.bitwise_and(half)};
}

/// The first `width` numbers that at::philox_engine(key, sample) draws for every sample, 32 bits each: int64 [samples,
/// width], computed on `device` for all samples together. (Philox4x32-10: Salmon, Moraes, Dror and Shaw, "Parallel
/// random numbers: as easy as 1, 2, 3", SC 2011. Block i of a sample encrypts the counter (i, sample).)
torch::Tensor bits_on_device(const Rows& rows, const RandomPlace& place, c10::Device device) {
  constexpr int rounds = 10;
  constexpr std::int64_t factors[] = {0xd2511f53, 0xcd9e8d57};
  constexpr std::uint32_t increments[] = {0x9e3779b9, 0xbb67ae85};
  const std::uint64_t key = key_of(place, RandomPlace::next_draw());
  std::uint32_t keys[] = {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
  const auto numbers = torch::TensorOptions(torch::kInt64).device(device);
  const torch::Tensor samples =
      torch::arange(place.first_sample, place.first_sample + rows.samples, numbers).unsqueeze(1);
  const std::int64_t blocks = (rows.width + 3) / 4;
  torch::Tensor counter[] = {torch::arange(blocks, numbers), torch::zeros({1}, numbers), samples.bitwise_and(half),
                             samples.bitwise_right_shift(32).bitwise_and_(half)};
  for (int round = 0; round < rounds; ++round) {
    const Product first = product(counter[0], factors[0]);
    const Product second = product(counter[2], factors[1]);
    counter[0] = second.high.bitwise_xor(counter[1]).bitwise_xor(static_cast<std::int64_t>(keys[0]));
    counter[1] = second.low;
    counter[2] = first.high.bitwise_xor(counter[3]).bitwise_xor(static_cast<std::int64_t>(keys[1]));
    counter[3] = first.low;
    for (int k = 0; k < 2; ++k) keys[k] += increments[k];
  }
  return torch::stack({counter[0], counter[1], counter[2], counter[3]}, 2)
      .view({rows.samples, blocks * 4})
      .narrow(1, 0, rows.width);
}

}  // namespace

torch::Tensor draw_by_sample(const torch::Tensor& like, const SampleDimension& where, const RandomPlace& place,
                             const FillRow& fill, std::string_view what) {
  const Rows rows = rows_of(like, where, place, what);
  return to_device(shaped_like(like, filled_on_host(rows, place, fill), rows), like.device());
}

torch::Tensor draw_by_sample(const torch::Tensor& like, const SampleDimension& where, const RandomPlace& place,
                             const Threshold& threshold, std::string_view what) {
  const auto [below, value] = threshold;
  if (like.device().is_cpu()) {
    const FillRow fill = [below, value](at::philox_engine& bits, float* numbers, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) numbers[i] = bits() < below ? 0.0f : value;
    };
    return draw_by_sample(like, where, place, fill, what);
  }
  const Rows rows = rows_of(like, where, place, what);
  const torch::Tensor bits = bits_on_device(rows, place, like.device());
  const torch::Tensor numbers = bits.ge(static_cast<std::int64_t>(below)).to(torch::kFloat32).mul_(value);
  return shaped_like(like, numbers, rows);
}

}  // namespace penstock
