#include "penstock/model/random_rows.h"

#include "penstock/base/device_copy.h"
#include "penstock/base/error.h"

namespace penstock {

namespace {

/// The number of samples along `dimension` of `like`; throws if it is not that of the micro-batch.
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
      " samples: name the samples' dimension (sample_dimension), say so where samples ",
      "and others were flattened into it (flattened), or take torch's own, which draws for the whole ", "micro-batch");
  return entries;
}

}  // namespace

torch::Tensor draw_by_sample(const torch::Tensor& like, const SampleDimension& where, const RandomPlace& place,
                             const FillRow& fill, std::string_view what) {
  const std::int64_t dimensions = std::max<std::int64_t>(like.dim(), 1);
  require<ScheduleError>(where.dimension >= -dimensions && where.dimension < dimensions, "'", place.call, "': ", what,
                         " got sample_dimension = ", where.dimension, ", but the tensor has shape ", like.sizes());
  const std::int64_t dimension = where.dimension < 0 ? where.dimension + dimensions : where.dimension;
  const std::int64_t samples = samples_in(like, dimension, where.flattened, place, what);
  const std::int64_t width = samples == 0 ? 0 : like.numel() / samples;
  torch::Tensor rows = torch::empty({samples, width}, torch::kFloat32);
  const std::uint64_t key = key_of(place, RandomPlace::next_draw());
  for (std::int64_t row = 0; row < samples; ++row) {
    at::philox_engine bits(key, static_cast<std::uint64_t>(place.first_sample + row));
    fill(bits, rows.data_ptr<float>() + row * width, width);
  }
  if (dimension == 0) return to_device(rows.view(like.sizes()).to(like.scalar_type()), like.device());
  std::vector<std::int64_t> sizes = like.sizes().vec();  // the samples' dimension first
  sizes.erase(sizes.begin() + dimension);
  sizes.insert(sizes.begin(), like.size(dimension));
  return to_device(rows.view(sizes).movedim(0, dimension).contiguous().to(like.scalar_type()), like.device());
}

}  // namespace penstock
