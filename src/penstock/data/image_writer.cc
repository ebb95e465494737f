#include "penstock/data/image_writer.h"

#include <algorithm>
#include <utility>

#include <ATen/core/PhiloxRNGEngine.h>

#include "penstock/base/error.h"
#include "penstock/base/hash.h"
#include "penstock/data/augment.h"
#include "penstock/data/data.h"

namespace penstock {
namespace {

constexpr std::int64_t most_pixels_a_side = 1 << 14;

/// FNV-1a of what all images of an epoch have in common. The constant makes these draws independent of others with the
/// same seed.
std::uint64_t key_of(std::uint64_t seed, std::uint64_t epoch) {
  constexpr std::uint64_t of_images = 0x696d61676573;
  return number_hash(epoch, number_hash(seed, number_hash(of_images, fnv_begin)));
}

std::vector<float> per_channel(const std::vector<double>& values, std::int64_t channels) {
  if (values.size() == 1) return std::vector<float>(static_cast<std::size_t>(channels), static_cast<float>(values[0]));
  return {values.begin(), values.end()};
}

bool changes_colours(const ImageTransforms& transforms) {
  return transforms.policy != AugmentPolicy::none || transforms.color_jitter.is_on();
}

void check_augmentation(const ImageTransforms& transforms, std::int64_t channels) {
  const ResizedCrop& crop = transforms.resized_crop;
  require<ConfigError>(crop.size >= 0 && crop.size <= most_pixels_a_side, "a crop resized to ", crop.size,
                       " pixels a side: pass 1 to ", most_pixels_a_side, ", or 0 for none");
  require<ConfigError>(crop.min_area > 0 && crop.min_area <= crop.max_area && crop.max_area <= 1, "a random crop of ",
                       crop.min_area, " to ", crop.max_area,
                       " of an image's area: pass numbers above 0, at most 1, the smaller one first");
  require<ConfigError>(crop.min_ratio > 0 && crop.min_ratio <= crop.max_ratio, "a random crop whose width by height ",
                       "is ", crop.min_ratio, " to ", crop.max_ratio, ": pass numbers above 0, the smaller one first");
  const RandAugment& random = transforms.rand_augment;
  require<ConfigError>(random.operations >= 0, "RandAugment with ", random.operations, " operations: pass 0 or more");
  require<ConfigError>(random.magnitude >= 0 && random.magnitude <= 30, "RandAugment with magnitude ", random.magnitude,
                       ": pass 0 to 30");
  const ColorJitter& jitter = transforms.color_jitter;
  for (const double factor : {jitter.brightness, jitter.contrast, jitter.saturation})
    require<ConfigError>(factor >= 0, "a colour jitter of ", factor, ": pass 0 (none) or more");
  require<ConfigError>(jitter.hue >= 0 && jitter.hue <= 0.5, "a hue jitter of ", jitter.hue, ": pass 0 (none) to 0.5");
  require<ConfigError>(!changes_colours(transforms) || channels == 1 || channels == 3, "images of ", channels,
                       " channels: augmentation policies and colour jitter support grey (1) and RGB (3)");
}

ImageSet check(ImageSet set) {
  require<ConfigError>(set.images.defined() && set.labels.defined(), "an image set needs images and labels");
  require<ConfigError>(set.images.dim() == 4 && set.images.scalar_type() == torch::kUInt8,
                       "images must be [N, C, H, W] of uint8, not ", set.images.dim(), "-dimensional ",
                       set.images.dtype().name());
  require<ConfigError>(set.labels.dim() == 1 && set.labels.scalar_type() == torch::kInt64,
                       "labels must be [N] of int64, not ", set.labels.dim(), "-dimensional ",
                       set.labels.dtype().name());
  require<ConfigError>(set.images.size(0) == set.labels.size(0), set.images.size(0), " images and ", set.labels.size(0),
                       " labels: each image needs one");
  require<ConfigError>(set.size() > 0, "an image set of 0 samples has no batches");
  const auto channels = static_cast<std::size_t>(set.images.size(1));
  for (const std::vector<double>* values : {&set.mean, &set.std})
    require<ConfigError>(values->size() == 1 || values->size() == channels, values->size(),
                         " means or standard deviations for ", channels, " channels: pass one for all, or one each");
  for (double std : set.std)
    require<ConfigError>(std > 0, "the standard deviation of an image set must be above 0, not ", std);
  set.images = set.images.to(torch::kCPU).contiguous();
  set.labels = set.labels.to(torch::kCPU).contiguous();
  return set;
}

class ImageSource : public SampleSource {
 public:
  ImageSource(ImageSet set, const ImageTransforms& transforms)
      : set_(check(std::move(set))), writer_(set_, transforms) {}

  std::int64_t size() const override { return set_.size(); }

  Batch make(const Request& request) const override {
    const auto count = static_cast<std::int64_t>(request.samples.size());
    Batch batch;
    batch.inputs =
        torch::empty({request.inputs.size(), writer_.channels(), writer_.height(), writer_.width()}, torch::kFloat32);
    batch.targets = torch::empty({count}, torch::kInt64);
    auto* input = batch.inputs[0].data_ptr<float>();
    const auto sample = [&](std::int64_t row) { return request.samples[static_cast<std::size_t>(row)]; };
    for (std::int64_t row = request.inputs.begin; row < request.inputs.end; ++row)
      input = writer_.write({.seed = request.seed, .epoch = request.epoch, .sample = sample(row)}, input);
    const auto* label = set_.labels.const_data_ptr<std::int64_t>();
    auto* target = batch.targets[0].data_ptr<std::int64_t>();
    for (std::int64_t row = 0; row < count; ++row) target[row] = label[sample(row)];
    return batch;
  }

 private:
  ImageSet set_;
  ImageWriter writer_;
};

}  // namespace

ImageChoice choose(const ImageTransforms& transforms, const SampleKey& key) {
  at::philox_engine draw(key_of(key.seed, key.epoch), static_cast<std::uint64_t>(key.sample));
  const auto below = [](std::uint64_t number, std::int64_t bound) {
    return static_cast<std::int64_t>(number * static_cast<std::uint64_t>(bound) >> 32);
  };
  ImageChoice choice;
  choice.row = below(draw(), 2 * transforms.pad + 1);
  choice.column = below(draw(), 2 * transforms.pad + 1);
  choice.flip = below(draw(), 2) == 1 && transforms.flip;
  return choice;
}

ImageWriter::ImageWriter(const ImageSet& set, const ImageTransforms& transforms)
    : images_(set.images),
      transforms_(transforms),
      channels_(images_.size(1)),
      height_(images_.size(2)),
      width_(images_.size(3)),
      bytes_{height_, width_},
      mean_(per_channel(set.mean, channels_)),
      std_(per_channel(set.std, channels_)),
      value_(static_cast<std::size_t>(channels_)) {
  require<ConfigError>(transforms.pad >= 0 && transforms.pad <= most_pixels_a_side, "a border of ", transforms.pad,
                       " pixels: pass 0 (none) to ", most_pixels_a_side);
  require<ConfigError>(transforms.resize >= 0 && transforms.resize <= most_pixels_a_side, "images resized to ",
                       transforms.resize, " pixels a side: pass 1 to ", most_pixels_a_side, ", or 0 to leave them");
  check_augmentation(transforms, channels_);
  if (transforms.resized_crop.size > 0) bytes_ = {transforms.resized_crop.size, transforms.resized_crop.size};
  for (std::size_t channel = 0; channel < value_.size(); ++channel)
    for (std::size_t stored = 0; stored < 256; ++stored)
      value_[channel][stored] = normalised(static_cast<float>(stored), channel);
  if (transforms.resize == 0 || (transforms.resize == bytes_.height && transforms.resize == bytes_.width)) return;
  down_ = between(bytes_.height, transforms.resize);
  across_ = between(bytes_.width, transforms.resize);
}

std::vector<ImageWriter::Between> ImageWriter::between(std::int64_t from, std::int64_t to) {
  std::vector<Between> places(static_cast<std::size_t>(to));
  const float step = static_cast<float>(from) / static_cast<float>(to);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const float at = std::max(0.0f, step * (static_cast<float>(i) + 0.5f) - 0.5f);
    const std::int64_t first = std::min(static_cast<std::int64_t>(at), from - 1);
    places[i] = {first, std::min(first + 1, from - 1), at - static_cast<float>(first)};
  }
  return places;
}

void ImageWriter::move(const std::uint8_t* plane, const ImageChoice& choice, std::uint8_t* out) const {
  const std::int64_t down = choice.row - transforms_.pad, across = choice.column - transforms_.pad;
  const std::int64_t first = std::max<std::int64_t>(0, -across), last = std::min(width_, width_ - across);
  for (std::int64_t row = std::max<std::int64_t>(0, -down); row < std::min(height_, height_ - down); ++row) {
    if (first >= last) break;  // the crop has no pixel of the image
    const std::uint8_t* from = plane + ((row + down) * width_ + across + first);
    std::uint8_t* to = out + row * width_;
    std::copy_n(from, last - first, to + first);
    if (choice.flip) std::reverse(to, to + width_);
  }
}

ByteImage ImageWriter::transformed(const std::uint8_t* pixels, const SampleKey& key) const {
  ByteImage image{channels_, height_, width_, {}};
  const auto count = static_cast<std::size_t>(channels_ * height_ * width_);
  if (transforms_.pad > 0 || transforms_.flip) {
    image.pixels.assign(count, 0);
    const ImageChoice choice = choose(transforms_, key);
    for (std::int64_t channel = 0; channel < channels_; ++channel)
      move(pixels + channel * image.plane(), choice, image.channel(channel));
  } else {
    image.pixels.assign(pixels, pixels + count);
  }
  if (transforms_.resized_crop.size > 0) image = apply_crop(image, transforms_.resized_crop, key);
  image = augment(std::move(image), transforms_, key);
  return transforms_.color_jitter.is_on() ? apply_jitter(std::move(image), transforms_.color_jitter, key) : image;
}

float* ImageWriter::write(const SampleKey& key, float* out) const {
  const std::uint8_t* pixels = images_.const_data_ptr<std::uint8_t>() + key.sample * channels_ * height_ * width_;
  ByteImage other;
  if (transforms_.pad > 0 || transforms_.flip || transforms_.resized_crop.size > 0 || changes_colours(transforms_)) {
    other = transformed(pixels, key);
    pixels = other.pixels.data();
  }
  const std::int64_t plane = bytes_.height * bytes_.width;
  for (std::size_t channel = 0; channel < value_.size(); ++channel, pixels += plane) {
    if (down_.empty())
      out = std::transform(pixels, pixels + plane, out, [&](std::uint8_t stored) { return value_[channel][stored]; });
    else
      out = write_resized(pixels, channel, out);
  }
  return out;
}

float* ImageWriter::write_resized(const std::uint8_t* plane, std::size_t channel, float* out) const {
  const auto mix = [](float first, float second, float share) { return (1 - share) * first + share * second; };
  for (const Between& rows : down_)
    for (const Between& columns : across_) {
      const auto along = [&](std::int64_t row) {
        const std::uint8_t* at = plane + row * bytes_.width;
        return mix(at[columns.first], at[columns.second], columns.share);
      };
      *out++ = normalised(mix(along(rows.first), along(rows.second), rows.share), channel);
    }
  return out;
}

std::shared_ptr<const SampleSource> image_source(ImageSet set, const ImageTransforms& transforms) {
  return std::make_shared<ImageSource>(std::move(set), transforms);
}

}  // namespace penstock
