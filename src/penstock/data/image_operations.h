// Image operations on bytes with the results of Pillow, bit by bit. Free of LibTorch. Pure functions, thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace penstock {

/// An image of 1 or 3 channels (grey, or red, green and blue), stored one channel after the other.
struct ByteImage {
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> pixels = {};  // channels * height * width

  std::int64_t plane() const { return height * width; }
  std::uint8_t* channel(std::int64_t index) { return pixels.data() + index * plane(); }
  const std::uint8_t* channel(std::int64_t index) const { return pixels.data() + index * plane(); }
};

/// In the order of RandAugment, which uses all but the last one. The comments give the meaning of `amount`.
enum class ImageOperation {
  identity,       // none
  shear_x,        // horizontal shift per row
  shear_y,        // vertical shift per column
  translate_x,    // pixels to the right, truncated to an integer
  translate_y,    // pixels down, truncated to an integer
  rotate,         // degrees counter-clockwise, about the centre
  brightness,     // relative change of the blend with black: 0 is the image, -1 is black, above 0 is brighter
  color,          // likewise, with the grey image
  contrast,       // likewise, with the mean grey
  sharpness,      // likewise, with the smoothed image
  posterize,      // number of bits kept of each byte, 0..8
  solarize,       // threshold: bytes from here on are inverted
  auto_contrast,  // none; scales each channel to 0..255
  equalize,       // none; equalises the histogram of each channel
  invert,         // none
};
inline constexpr int image_operations = 15;

/// The name in the papers: "ShearX".
std::string_view name_of(ImageOperation operation);

/// Geometric operations take the nearest pixel, and black outside of the image.
ByteImage apply_operation(const ByteImage& image, ImageOperation operation, double amount);

/// Rotates the hue of a colour image by `part` of the circle, -0.5..0.5; a grey image is returned unchanged.
ByteImage turn_hue(ByteImage image, double part);

/// Rows and columns of an image.
struct ImageBox {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

struct ImageSize {
  std::int64_t height = 0;
  std::int64_t width = 0;
};
/// Resizes the pixels within `box` to `size`: linear interpolation, with averaging where the image shrinks.
ByteImage crop_and_resize(const ByteImage& image, const ImageBox& box, const ImageSize& size);

}  // namespace penstock
