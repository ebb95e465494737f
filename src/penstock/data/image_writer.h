// Converts a stored image to the network's input: transforms on bytes, then normalisation.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "penstock/data/data.h"
#include "penstock/data/image_operations.h"
#include "penstock/data/sample_random.h"

namespace penstock {

/// The random crop and flip of one image.
struct ImageChoice {
  std::int64_t row = 0;  // top left pixel of the crop within the padded image
  std::int64_t column = 0;
  bool flip = false;

  friend bool operator==(const ImageChoice&, const ImageChoice&) = default;
};

/// A function of its arguments: rows and columns are uniform in 0..2*pad, the flip has probability 1/2. The choices are
/// drawn independently, so that switching one transform off does not change the others.
ImageChoice choose(const ImageTransforms& transforms, const SampleKey& key);

/// Transforms and normalises images of one set. Uses scalar loops instead of tensor arithmetic: the loader's threads
/// then run no kernel that could start a second thread pool or change the ranks' thread settings, and the values depend
/// on neither vector width nor thread count. Thread-safe.
class ImageWriter {
 public:
  /// Throws ConfigError for invalid transforms. Shares the memory of the set's images.
  ImageWriter(const ImageSet& set, const ImageTransforms& transforms);

  std::int64_t channels() const { return channels_; }
  std::int64_t height() const { return down_.empty() ? bytes_.height : static_cast<std::int64_t>(down_.size()); }
  std::int64_t width() const { return across_.empty() ? bytes_.width : static_cast<std::int64_t>(across_.size()); }

  /// Writes one image, [channels, height, width] in row-major order, to `out`; returns the end of what was written.
  float* write(const SampleKey& key, float* out) const;

 private:
  /// Linear interpolation between two pixels of a row or column: the weight of `second` is `share`.
  struct Between {
    std::int64_t first = 0;
    std::int64_t second = 0;
    float share = 0;
  };
  static std::vector<Between> between(std::int64_t from, std::int64_t to);

  /// Applies padding, crop and flip to one channel; the size stays.
  void move(const std::uint8_t* plane, const ImageChoice& choice, std::uint8_t* out) const;
  ByteImage transformed(const std::uint8_t* pixels, const SampleKey& key) const;
  float* write_resized(const std::uint8_t* plane, std::size_t channel, float* out) const;
  float normalised(float pixel, std::size_t channel) const { return (pixel / 255.0f - mean_[channel]) / std_[channel]; }

  torch::Tensor images_;
  ImageTransforms transforms_;
  std::int64_t channels_, height_, width_;     // of the stored images
  ImageSize bytes_;                            // after the transforms on bytes
  std::vector<float> mean_, std_;              // per channel
  std::vector<std::array<float, 256>> value_;  // per channel: the normalised value of each byte
  std::vector<Between> down_, across_;         // for the final resize; empty: none
};

}  // namespace penstock
