#include <utility>

#include "penstock/base/error.h"
#include "penstock/data/data.h"
#include "penstock/data/image_writer.h"

namespace penstock {
namespace {

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
  require<ConfigError>(set.size() > 0, "an image set of 0 samples gives no batches");
  const auto channels = static_cast<std::size_t>(set.images.size(1));
  for (const std::vector<double>* values : {&set.mean, &set.std})
    require<ConfigError>(values->size() == 1 || values->size() == channels, values->size(),
                         " means or standard deviations for ", channels, " channels: give one for all, or one each");
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

std::shared_ptr<const SampleSource> image_source(ImageSet set, const ImageTransforms& transforms) {
  return std::make_shared<ImageSource>(std::move(set), transforms);
}

}  // namespace penstock
