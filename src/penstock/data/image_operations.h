// Operations on the bytes of one image, as Pillow computes them. Torch-free.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace penstock {

/// An image of 1 or 3 channels (grey, or red, green and blue), one plane after the other.
struct ByteImage {
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> pixels = {};  // channels * height * width

  std::int64_t plane() const { return height * width; }
  std::uint8_t* channel(std::int64_t index) { return pixels.data() + index * plane(); }
  const std::uint8_t* channel(std::int64_t index) const { return pixels.data() + index * plane(); }
};

/// In the order in which RandAugment lists them; it leaves out the last one.
enum class ImageOperation {
  identity,
  shear_x,        // amount: horizontal shift per row
  shear_y,        // vertical shift per column
  translate_x,    // pixels to the right; the fraction is cut off
  translate_y,    // pixels down
  rotate,         // degrees against the clock, about the centre
  brightness,     // blended with black: 0 leaves the image, -1 is black, above 0 is brighter
  color,          // with the grey image
  contrast,       // with the mean grey
  sharpness,      // with the smoothed image
  posterize,      // bits kept of each byte, 0..8
  solarize,       // bytes from here on are inverted
  auto_contrast,  // without an amount: stretched to 0..255 in each channel
  equalize,       // without: an even histogram in each channel
  invert,         // without
};
inline constexpr int image_operations = 15;

/// As the papers spell it: "ShearX".
std::string_view name_of(ImageOperation operation);

/// Geometry takes the nearest pixel, and black from outside.
ByteImage apply_operation(const ByteImage& image, ImageOperation operation, double amount);

/// AlternatingOrder the hue of a coloured image by a part of the circle, -0.5..0.5; a grey image stays.
ByteImage turn_hue(ByteImage image, double part);

/// Rows and columns of an image.
struct ImageBox {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

/// The pixels within `box` as an image of `height` x `width`, interpolated linearly, averaged over all pixels that
/// fall together where it shrinks.
struct ImageSize {
  std::int64_t height = 0;
  std::int64_t width = 0;
};
ByteImage crop_and_resize(const ByteImage& image, const ImageBox& box, const ImageSize& size);

}  // namespace penstock
