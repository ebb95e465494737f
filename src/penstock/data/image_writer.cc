#include "penstock/data/image_writer.h"

#include <algorithm>

#include <ATen/core/PhiloxRNGEngine.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

constexpr std::int64_t most_pixels_a_side = 1 << 14;

/// FNV-1a over what all images of an epoch have in common. The first word keeps these draws apart from others that
/// take the same seed.
std::uint64_t key_of(std::uint64_t seed, std::uint64_t epoch) {
  constexpr std::uint64_t of_images = 0x696d61676573;
  std::uint64_t hash = 14695981039346656037ull;
  for (const std::uint64_t number : {of_images, seed, epoch})
    for (int shift = 0; shift < 64; shift += 8) hash = (hash ^ (number >> shift & 0xff)) * 1099511628211ull;
  return hash;
}

std::vector<float> per_channel(const std::vector<double>& values, std::int64_t channels) {
  if (values.size() == 1) return std::vector<float>(static_cast<std::size_t>(channels), static_cast<float>(values[0]));
  return {values.begin(), values.end()};
}

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
      mean_(per_channel(set.mean, channels_)),
      std_(per_channel(set.std, channels_)),
      value_(static_cast<std::size_t>(channels_)) {
  require<ConfigError>(transforms.pad >= 0 && transforms.pad <= most_pixels_a_side, "a border of ", transforms.pad,
                       " pixels: give 0 (none) to ", most_pixels_a_side);
  require<ConfigError>(transforms.resize >= 0 && transforms.resize <= most_pixels_a_side, "images resized to ",
                       transforms.resize, " pixels a side: give 1 to ", most_pixels_a_side, ", or 0 to leave them");
  for (std::size_t channel = 0; channel < value_.size(); ++channel)
    for (std::size_t stored = 0; stored < 256; ++stored)
      value_[channel][stored] = normalised(static_cast<float>(stored), channel);
  if (transforms.resize == 0 || (transforms.resize == height_ && transforms.resize == width_)) return;
  down_ = between(height_, transforms.resize);
  across_ = between(width_, transforms.resize);
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

std::vector<std::uint8_t> ImageWriter::moved(const std::uint8_t* plane, const ImageChoice& choice) const {
  std::vector<std::uint8_t> image(static_cast<std::size_t>(height_ * width_), 0);
  const std::int64_t down = choice.row - transforms_.pad, across = choice.column - transforms_.pad;
  const std::int64_t first = std::max<std::int64_t>(0, -across), last = std::min(width_, width_ - across);
  for (std::int64_t row = std::max<std::int64_t>(0, -down); row < std::min(height_, height_ - down); ++row) {
    if (first >= last) break;  // the crop lies in the border alone
    const std::uint8_t* from = plane + ((row + down) * width_ + across + first);
    std::uint8_t* to = image.data() + row * width_;
    std::copy_n(from, last - first, to + first);
    if (choice.flip) std::reverse(to, to + width_);
  }
  return image;
}

float* ImageWriter::write(const SampleKey& key, float* out) const {
  const std::int64_t pixels = height_ * width_;
  const std::uint8_t* plane = images_.const_data_ptr<std::uint8_t>() + key.sample * channels_ * pixels;
  const bool moves = transforms_.pad > 0 || transforms_.flip;
  const ImageChoice choice = moves ? choose(transforms_, key) : ImageChoice{};
  for (std::size_t channel = 0; channel < value_.size(); ++channel, plane += pixels) {
    std::vector<std::uint8_t> other;
    if (moves) other = moved(plane, choice);
    const std::uint8_t* image = moves ? other.data() : plane;
    if (down_.empty())
      out = std::transform(image, image + pixels, out, [&](std::uint8_t stored) { return value_[channel][stored]; });
    else
      out = write_resized(image, channel, out);
  }
  return out;
}

float* ImageWriter::write_resized(const std::uint8_t* plane, std::size_t channel, float* out) const {
  const auto mix = [](float first, float second, float share) { return (1 - share) * first + share * second; };
  for (const Between& rows : down_)
    for (const Between& columns : across_) {
      const auto along = [&](std::int64_t row) {
        const std::uint8_t* at = plane + row * width_;
        return mix(at[columns.first], at[columns.second], columns.share);
      };
      *out++ = normalised(mix(along(rows.first), along(rows.second), rows.share), channel);
    }
  return out;
}

}  // namespace penstock
