#include "penstock/data/image_operations.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace penstock {
namespace {

/// The source (x', y') of an output pixel (x, y): x' = [0] x + [1] y + [2], y' = [3] x + [4] y + [5].
using Affine = std::array<double, 6>;

constexpr double fixed_one = 65536;  // 16 fractional bits, as in Pillow

std::int64_t fixed(double value) { return static_cast<std::int64_t>(std::floor(value * fixed_one + 0.5)); }

ByteImage moved_by(const ByteImage& image, const Affine& a) {
  ByteImage out{image.channels, image.height, image.width, std::vector<std::uint8_t>(image.pixels.size(), 0)};
  const std::int64_t x_by_x = fixed(a[0]), x_by_y = fixed(a[1]), y_by_x = fixed(a[3]), y_by_y = fixed(a[4]);
  // Maps the centre of a pixel to the centre of a pixel.
  std::int64_t row_x = fixed(a[2] + a[0] * 0.5 + a[1] * 0.5), row_y = fixed(a[5] + a[3] * 0.5 + a[4] * 0.5);
  for (std::int64_t y = 0; y < image.height; ++y, row_x += x_by_y, row_y += y_by_y) {
    std::int64_t at_x = row_x, at_y = row_y;
    for (std::int64_t x = 0; x < image.width; ++x, at_x += x_by_x, at_y += y_by_x) {
      const std::int64_t from_x = at_x >> 16, from_y = at_y >> 16;
      if (from_x < 0 || from_x >= image.width || from_y < 0 || from_y >= image.height) continue;
      for (std::int64_t channel = 0; channel < image.channels; ++channel)
        out.channel(channel)[y * image.width + x] = image.channel(channel)[from_y * image.width + from_x];
    }
  }
  return out;
}

ByteImage rotated(const ByteImage& image, double degrees) {
  degrees = std::fmod(degrees, 360.0);
  if (degrees < 0) degrees += 360.0;
  if (degrees == 0) return image;
  const auto rounded = [](double value) { return std::round(value * 1e15) / 1e15; };
  const double angle = -degrees * std::numbers::pi / 180;
  const double cosine = rounded(std::cos(angle)), sine = rounded(std::sin(angle));
  const double x = static_cast<double>(image.width) / 2, y = static_cast<double>(image.height) / 2;
  return moved_by(image, {cosine, sine, x - cosine * x - sine * y, -sine, cosine, y + sine * x - cosine * y});
}

template <class Value>
ByteImage mapped(ByteImage image, Value&& value) {
  for (std::uint8_t& pixel : image.pixels) pixel = value(pixel);
  return image;
}

std::uint8_t clipped(float value) { return value <= 0 ? 0 : value >= 255 ? 255 : static_cast<std::uint8_t>(value); }

/// `plain` + factor * (image - plain), clamped to 0..255 and truncated to integers.
ByteImage blended(const ByteImage& plain, ByteImage image, double the_factor) {
  const auto factor = static_cast<float>(the_factor);
  if (factor == 1) return image;
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    const int from = plain.pixels[i];
    image.pixels[i] = clipped(static_cast<float>(from) + factor * static_cast<float>(image.pixels[i] - from));
  }
  return image;
}

ByteImage of_one_grey(ByteImage image, std::uint8_t grey) {
  std::fill(image.pixels.begin(), image.pixels.end(), grey);
  return image;
}

/// The grey image, ITU-R 601 luma, in all channels.
ByteImage in_grey(ByteImage image) {
  if (image.channels != 3) return image;
  for (std::int64_t i = 0; i < image.plane(); ++i) {
    const std::uint32_t sum =
        image.channel(0)[i] * 19595U + image.channel(1)[i] * 38470U + image.channel(2)[i] * 7471U + 0x8000U;
    for (std::int64_t channel = 0; channel < 3; ++channel)
      image.channel(channel)[i] = static_cast<std::uint8_t>(sum >> 16);
  }
  return image;
}

std::uint8_t mean_grey(const ByteImage& image) {
  const ByteImage grey = in_grey(image);
  double sum = 0;
  for (std::int64_t i = 0; i < grey.plane(); ++i) sum += grey.channel(0)[i];
  return static_cast<std::uint8_t>(sum / static_cast<double>(grey.plane()) + 0.5);
}

/// A mean over 3 x 3 pixels with weight 5 for the middle one. Border pixels are unchanged.
ByteImage smoothed(const ByteImage& image) {
  ByteImage out = image;
  for (std::int64_t channel = 0; channel < image.channels; ++channel) {
    const std::uint8_t* from = image.channel(channel);
    for (std::int64_t y = 1; y + 1 < image.height; ++y)
      for (std::int64_t x = 1; x + 1 < image.width; ++x) {
        int sum = 4 * from[y * image.width + x];
        for (std::int64_t row = y - 1; row <= y + 1; ++row)
          for (std::int64_t column = x - 1; column <= x + 1; ++column) sum += from[row * image.width + column];
        out.channel(channel)[y * image.width + x] = static_cast<std::uint8_t>((2 * sum + 13) / 26);
      }
  }
  return out;
}

ByteImage stretched(ByteImage image) {
  for (std::int64_t channel = 0; channel < image.channels; ++channel) {
    std::uint8_t* const begin = image.channel(channel);
    std::uint8_t* const end = begin + image.plane();
    const auto [least, most] = std::minmax_element(begin, end);
    const int low = *least, high = *most;
    if (high <= low) continue;
    const double scale = 255.0 / (high - low), offset = -low * scale;
    std::transform(begin, end, begin, [&](std::uint8_t pixel) {
      return static_cast<std::uint8_t>(std::clamp(static_cast<int>(pixel * scale + offset), 0, 255));
    });
  }
  return image;
}

ByteImage equalized(ByteImage image) {
  for (std::int64_t channel = 0; channel < image.channels; ++channel) {
    std::uint8_t* const begin = image.channel(channel);
    std::uint8_t* const end = begin + image.plane();
    std::array<std::int64_t, 256> count{};
    for (const std::uint8_t* pixel = begin; pixel != end; ++pixel) ++count[*pixel];
    const std::uint8_t last = *std::max_element(begin, end);
    const std::int64_t step = (image.plane() - count[last]) / 255;
    if (step == 0) continue;
    std::array<std::uint8_t, 256> value{};
    std::int64_t below = step / 2;
    for (std::size_t i = 0; i < 256; ++i) {
      value[i] = static_cast<std::uint8_t>(std::min<std::int64_t>(255, below / step));
      below += count[i];
    }
    std::transform(begin, end, begin, [&](std::uint8_t pixel) { return value[pixel]; });
  }
  return image;
}

struct Hsv {
  std::uint8_t hue, saturation, value;
};

Hsv to_hsv(std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
  const std::uint8_t most = std::max({red, green, blue}), least = std::min({red, green, blue});
  if (most == least) return {0, 0, most};
  const auto range = static_cast<float>(most - least);
  const auto share = [&](std::uint8_t colour) { return static_cast<float>(most - colour) / range; };
  const auto saturation = static_cast<float>(most - least) / static_cast<float>(most);
  float hue = 0;
  if (red == most)
    hue = share(blue) - share(green);
  else if (green == most)
    hue = static_cast<float>(2.0 + share(red) - share(blue));
  else
    hue = static_cast<float>(4.0 + share(green) - share(red));
  hue = static_cast<float>(std::fmod(hue / 6.0 + 1.0, 1.0));
  return {static_cast<std::uint8_t>(hue * 255.0), static_cast<std::uint8_t>(saturation * 255.0), most};
}

std::array<std::uint8_t, 3> to_rgb(const Hsv& colour) {
  const std::uint8_t v = colour.value;
  if (colour.saturation == 0) return {v, v, v};
  const double place = colour.hue * 6.0f / 255.0;
  const int sector = static_cast<int>(std::floor(place));
  const auto rest = static_cast<float>(place - sector), saturation = static_cast<float>(colour.saturation / 255.0);
  const auto level = [&](double share) {
    return static_cast<std::uint8_t>(std::clamp(static_cast<int>(std::round(v * share)), 0, 255));
  };
  const std::uint8_t p = level(1.0 - saturation), q = level(1.0 - saturation * rest),
                     t = level(1.0 - saturation * (1.0 - rest));
  switch (sector % 6) {
    case 0: return {v, t, p};
    case 1: return {q, v, p};
    case 2: return {p, v, t};
    case 3: return {p, q, v};
    case 4: return {t, p, v};
    default: return {v, p, q};
  }
}

constexpr int weight_bits = 22;  // fractional bits, as in Pillow

/// The pixels of a row or column that contribute to one pixel of the resized image, with their weights.
struct ResizeWindow {
  std::int64_t first = 0;
  std::vector<std::int32_t> weights;
};

std::vector<ResizeWindow> windows(std::int64_t from, std::int64_t to) {
  std::vector<ResizeWindow> all(static_cast<std::size_t>(to));
  const double scale = static_cast<double>(from) / static_cast<double>(to), width = std::max(1.0, scale);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const std::int64_t first = std::max<std::int64_t>(0, static_cast<std::int64_t>(centre - width + 0.5));
    const std::int64_t end = std::min(from, static_cast<std::int64_t>(centre + width + 0.5));
    std::vector<double> weights;
    double sum = 0;
    for (std::int64_t at = first; at < end; ++at) {
      const double away = std::abs((static_cast<double>(at) - centre + 0.5) / width);
      weights.push_back(std::max(0.0, 1.0 - away));
      sum += weights.back();
    }
    all[i].first = first;
    for (const double weight : weights)
      all[i].weights.push_back(static_cast<std::int32_t>(0.5 + weight / sum * (1 << weight_bits)));
  }
  return all;
}

std::uint8_t weighted(const ResizeWindow& window, const std::uint8_t* pixels, std::int64_t stride) {
  std::int64_t sum = std::int64_t{1} << (weight_bits - 1);
  for (std::size_t i = 0; i < window.weights.size(); ++i)
    sum += std::int64_t{window.weights[i]} * pixels[(window.first + static_cast<std::int64_t>(i)) * stride];
  return static_cast<std::uint8_t>(std::clamp<std::int64_t>(sum >> weight_bits, 0, 255));
}

}  // namespace

std::string_view name_of(ImageOperation operation) {
  constexpr std::array<std::string_view, image_operations> names = {
      "Identity", "ShearX",    "ShearY",    "TranslateX", "TranslateY",   "Rotate",   "Brightness", "Color",
      "Contrast", "Sharpness", "Posterize", "Solarize",   "AutoContrast", "Equalize", "Invert"};
  return names[static_cast<std::size_t>(operation)];
}

ByteImage apply_operation(const ByteImage& image, ImageOperation operation, double amount) {
  switch (operation) {
    case ImageOperation::identity: return image;
    case ImageOperation::shear_x: return moved_by(image, {1, amount, 0, 0, 1, 0});
    case ImageOperation::shear_y: return moved_by(image, {1, 0, 0, amount, 1, 0});
    case ImageOperation::translate_x: return moved_by(image, {1, 0, -std::trunc(amount), 0, 1, 0});
    case ImageOperation::translate_y: return moved_by(image, {1, 0, 0, 0, 1, -std::trunc(amount)});
    case ImageOperation::rotate: return rotated(image, amount);
    case ImageOperation::brightness: return blended(of_one_grey(image, 0), image, 1 + amount);
    case ImageOperation::color: return blended(in_grey(image), image, 1 + amount);
    case ImageOperation::contrast: return blended(of_one_grey(image, mean_grey(image)), image, 1 + amount);
    case ImageOperation::sharpness: return blended(smoothed(image), image, 1 + amount);
    case ImageOperation::posterize: {
      const int dropped = 8 - static_cast<int>(amount);
      return mapped(image, [&](std::uint8_t pixel) { return static_cast<std::uint8_t>(pixel >> dropped << dropped); });
    }
    case ImageOperation::solarize:
      return mapped(
          image, [&](std::uint8_t pixel) { return static_cast<std::uint8_t>(pixel < amount ? pixel : 255 - pixel); });
    case ImageOperation::auto_contrast: return stretched(image);
    case ImageOperation::equalize: return equalized(image);
    case ImageOperation::invert:
      return mapped(image, [](std::uint8_t pixel) { return static_cast<std::uint8_t>(255 - pixel); });
  }
  return image;
}

ByteImage turn_hue(ByteImage image, double part) {
  if (image.channels != 3) return image;
  const auto turn = static_cast<std::uint8_t>(static_cast<int>(part * 255));  // wraps around, as hues do
  for (std::int64_t i = 0; i < image.plane(); ++i) {
    Hsv colour = to_hsv(image.channel(0)[i], image.channel(1)[i], image.channel(2)[i]);
    colour.hue = static_cast<std::uint8_t>(colour.hue + turn);
    const auto rgb = to_rgb(colour);
    for (std::int64_t channel = 0; channel < 3; ++channel)
      image.channel(channel)[i] = rgb[static_cast<std::size_t>(channel)];
  }
  return image;
}

ByteImage crop_and_resize(const ByteImage& image, const ImageBox& box, const ImageSize& size) {
  // Rows first, with rounding in between, as in Pillow.
  const std::vector<ResizeWindow> across = windows(box.width, size.width), down = windows(box.height, size.height);
  ByteImage out{image.channels, size.height, size.width, {}};
  out.pixels.resize(static_cast<std::size_t>(image.channels * out.plane()));
  std::vector<std::uint8_t> narrow(static_cast<std::size_t>(box.height * size.width));
  for (std::int64_t channel = 0; channel < image.channels; ++channel) {
    for (std::int64_t y = 0; y < box.height; ++y) {
      const std::uint8_t* row = image.channel(channel) + (box.top + y) * image.width + box.left;
      for (std::int64_t x = 0; x < size.width; ++x)
        narrow[static_cast<std::size_t>(y * size.width + x)] = weighted(across[static_cast<std::size_t>(x)], row, 1);
    }
    for (std::int64_t y = 0; y < size.height; ++y)
      for (std::int64_t x = 0; x < size.width; ++x)
        out.channel(channel)[y * size.width + x] =
            weighted(down[static_cast<std::size_t>(y)], narrow.data() + x, size.width);
  }
  return out;
}

}  // namespace penstock
