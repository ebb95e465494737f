// The weights of a Hugging Face directory, or of one .safetensors file, as a source of initial values.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "penstock/hf/weight_files.h"
#include "penstock/model/weight_source.h"

namespace penstock::hf {

/// The tensors of WeightFiles. Each is mapped into memory while it is read, so that a process holds no more than its own
/// copies of the tensors that it reads. The files must not change meanwhile: a mapped file that becomes shorter ends the
/// process. Thread-safe.
class MappedWeights : public WeightSource {
 public:
  /// Throws as WeightFiles, and DataError for a dtype that LibTorch does not have.
  explicit MappedWeights(const std::string& path, const Renaming& network_name = nullptr);

  torch::Tensor read(const std::string& name) const override;
  std::vector<std::string> names() const override;
  std::string place() const override { return files_.path(); }
  /// True for what Hugging Face stores although it follows from the configuration: the weight of a tied head, the
  /// frequencies of rotary embeddings, and the masks of GPT-2 and GPT-NeoX.
  bool may_be_unused(const std::string& name) const override;

  /// The dtypes of its floating-point tensors.
  const std::set<TensorType>& floating_types() const { return floating_types_; }

 private:
  WeightFiles files_;
  std::set<TensorType> floating_types_;
};

}  // namespace penstock::hf
