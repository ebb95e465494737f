// From an image as stored to the numbers that a network sees.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "penstock/data/data.h"
#include "penstock/data/image_operations.h"
#include "penstock/data/sample_random.h"

namespace penstock {

/// The random choices for one image.
struct ImageChoice {
  std::int64_t row = 0;  // of the padded image: where the crop begins
  std::int64_t column = 0;
  bool flip = false;

  friend bool operator==(const ImageChoice&, const ImageChoice&) = default;
};

/// A function of its arguments: rows and columns uniform in 0..2*pad, the flip by a fair coin. Each choice has a draw
/// of its own, so that switching one transform off leaves the others' choices.
ImageChoice choose(const ImageTransforms& transforms, const SampleKey& key);

/// Writes images of one set: transforms on bytes, then numbers.
/// Plain loops instead of tensor arithmetic: the loader's thread then runs no kernel that
/// could start a second pool of threads or disturb the ranks' thread settings, and the values cannot depend on vector
/// width or thread count. Thread-safe.
class ImageWriter {
 public:
  /// Throws ConfigError for transforms that cannot be. Keeps the set's pixels alive.
  ImageWriter(const ImageSet& set, const ImageTransforms& transforms);

  std::int64_t channels() const { return channels_; }
  std::int64_t height() const { return down_.empty() ? bytes_.height : static_cast<std::int64_t>(down_.size()); }
  std::int64_t width() const { return across_.empty() ? bytes_.width : static_cast<std::int64_t>(across_.size()); }

  /// One image, [channels, height, width], to `out`; returns what follows it there.
  float* write(const SampleKey& key, float* out) const;

 private:
  /// Between which two pixels of a row or column, and how much of the second.
  struct Between {
    std::int64_t first = 0;
    std::int64_t second = 0;
    float share = 0;
  };
  static std::vector<Between> between(std::int64_t from, std::int64_t to);

  /// The crop out of the border, mirrored where that was chosen: another plane of the same size.
  void move(const std::uint8_t* plane, const ImageChoice& choice, std::uint8_t* out) const;
  ByteImage transformed(const std::uint8_t* pixels, const SampleKey& key) const;
  float* write_resized(const std::uint8_t* plane, std::size_t channel, float* out) const;
  float normalised(float pixel, std::size_t channel) const { return (pixel / 255.0f - mean_[channel]) / std_[channel]; }

  torch::Tensor images_;
  ImageTransforms transforms_;
  std::int64_t channels_, height_, width_;     // as stored
  ImageSize bytes_;                            // when it becomes numbers
  std::vector<float> mean_, std_;              // per channel
  std::vector<std::array<float, 256>> value_;  // per channel: what each pixel becomes
  std::vector<Between> down_, across_;         // empty: the size stays
};

}  // namespace penstock
