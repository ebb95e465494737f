// The weights of a Hugging Face directory, or of one .safetensors file, as a source of initial values.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "penstock/checkpoint/durable_files.h"
#include "penstock/model/weight_source.h"

namespace penstock::hf {

/// The name in the network of a tensor that a file calls `name`.
using Renaming = std::function<std::string(const std::string& name)>;

/// The tensors of one or several .safetensors files. Each is mapped into memory while it is read, so that a process
/// holds no more than its own copies of the tensors that it reads. The files must not change meanwhile: a mapped file
/// that becomes shorter ends the process. Thread-safe.
class MappedWeights : public WeightSource {
 public:
  /// `path` is a .safetensors file, or a directory with model.safetensors or with model.safetensors.index.json and the
  /// files that it lists. Reads the headers of all files. Throws DataError, which names the file, for a file that is
  /// missing, incomplete or malformed, and for a tensor that the index lists and its file does not have.
  explicit MappedWeights(const std::string& path, const Renaming& network_name = nullptr);

  torch::Tensor read(const std::string& name) const override;
  std::vector<std::string> names() const override;
  std::string place() const override { return path_; }
  /// True for what Hugging Face stores although it follows from the configuration: the weight of a tied head, the
  /// frequencies of rotary embeddings, and the masks of GPT-2 and GPT-NeoX.
  bool may_be_unused(const std::string& name) const override;

  /// The dtypes of its floating-point tensors.
  const std::set<TensorType>& floating_types() const { return floating_types_; }

 private:
  struct Place {
    const SafetensorsFile* file = nullptr;
    TensorPlace tensor = {};
  };

  void add_file(const std::string& path, const Renaming& network_name);
  void add_indexed_files(const std::string& directory, const Renaming& network_name);

  std::string path_;
  std::list<SafetensorsFile> files_;
  std::map<std::string, Place> places_;  // by the name in the network
  std::set<TensorType> floating_types_;
};

}  // namespace penstock::hf
