#include "penstock/data/sample_source.h"

#include <cstring>

#include "penstock/base/error.h"
#include "penstock/model/value.h"

namespace penstock {
namespace {

/// Tensors with random access to their samples.
class Columns {
 public:
  Columns(const char* what, const BatchTensors& tensors, const SampleDims& dims) : what_(what) {
    const Tensors all = tensors.list();
    require<ConfigError>(dims.size() <= all.size(), "batch_dims has ", dims.size(), " dimensions for ", all.size(), " ",
                         what, ": pass at most one for each");
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::optional<int> along = i < dims.size() ? dims[i] : 0;
      require<ConfigError>(all[i].defined() && (!along || (*along >= 0 && *along < all[i].dim())), "number ", i,
                           " of the ", what, " has no dimension ", along.value_or(0), " for its samples");
      columns_.push_back({all[i].detach().to(torch::kCPU).contiguous(), along.value_or(-1)});
    }
  }

  /// The number of samples; 0 if no tensor has any.
  std::int64_t samples() const {
    std::int64_t samples = 0;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const auto& [tensor, dimension] = columns_[i];
      if (dimension < 0) continue;
      const std::int64_t own = tensor.size(dimension);
      require<ConfigError>(samples == 0 || own == samples, "the ", what_, " have ", samples, " samples, but number ", i,
                           " has ", own, ": pass as many of each");
      samples = own;
    }
    return samples;
  }

  BatchTensors pick(std::span<const std::int64_t> samples) const {
    Tensors picked;
    for (const auto& [tensor, dimension] : columns_)
      picked.push_back(dimension < 0 ? tensor : picked_from(tensor, dimension, samples));
    return picked;
  }

 private:
  // A plain loop, because tensor operations could start a thread pool on a loader's thread.
  static torch::Tensor picked_from(const torch::Tensor& tensor, int dimension, std::span<const std::int64_t> samples) {
    std::vector<std::int64_t> sizes = tensor.sizes().vec();
    const std::int64_t there = sizes[static_cast<std::size_t>(dimension)];
    std::int64_t outer = 1;
    for (int d = 0; d < dimension; ++d) outer *= sizes[static_cast<std::size_t>(d)];
    sizes[static_cast<std::size_t>(dimension)] = static_cast<std::int64_t>(samples.size());
    torch::Tensor picked = torch::empty(sizes, tensor.options());
    if (picked.numel() == 0) return picked;
    const auto bytes = static_cast<std::size_t>(tensor.numel() / (outer * there)) * tensor.element_size();
    const auto* from = static_cast<const char*>(tensor.const_data_ptr());
    auto* to = static_cast<char*>(picked.data_ptr());
    for (std::int64_t o = 0; o < outer; ++o)
      for (const std::int64_t sample : samples) {
        std::memcpy(to, from + static_cast<std::size_t>(o * there + sample) * bytes, bytes);
        to += bytes;
      }
    return picked;
  }

  struct Column {
    torch::Tensor tensor;
    int dimension = 0;  // that holds the samples; -1: none
  };
  const char* what_;
  std::vector<Column> columns_;
};

class TensorSource : public SampleSource {
 public:
  TensorSource(const BatchTensors& inputs, const BatchTensors& targets, const BatchDims& dims)
      : inputs_("inputs", inputs, dims.inputs), targets_("targets", targets, dims.targets) {
    const std::int64_t of_inputs = inputs_.samples(), of_targets = targets_.samples();
    require<ConfigError>(of_inputs > 0, "none of the inputs has samples: pass one that has, and its dimension");
    require<ConfigError>(of_targets == of_inputs || of_targets == 0, "the inputs have ", of_inputs,
                         " samples and the targets ", of_targets, ": pass as many of each");
    size_ = of_inputs;
  }

  std::int64_t size() const override { return size_; }

  Batch make(const Request& request) const override {
    const auto begin = static_cast<std::size_t>(request.inputs.begin);
    const auto count = static_cast<std::size_t>(request.inputs.size());
    return {inputs_.pick(request.samples.subspan(begin, count)), targets_.pick(request.samples)};
  }

 private:
  Columns inputs_, targets_;
  std::int64_t size_ = 0;
};

}  // namespace

std::shared_ptr<const SampleSource> tensor_source(const BatchTensors& inputs, const BatchTensors& targets,
                                                  const BatchDims& dims) {
  return std::make_shared<TensorSource>(inputs, targets, dims);
}

}  // namespace penstock
