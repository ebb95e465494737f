// The .safetensors files of a Hugging Face directory, or one such file: which tensor is where. Free of LibTorch.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <string>

#include "penstock/checkpoint/durable_files.h"

namespace penstock::hf {

/// The name in the network of a tensor that a file calls `name`.
using Renaming = std::function<std::string(const std::string& name)>;

/// The headers of one or several .safetensors files, which stay open. Thread-safe.
class WeightFiles {
 public:
  struct Place {
    const SafetensorsFile* file = nullptr;
    TensorPlace tensor = {};
  };

  /// `path` is a .safetensors file, or a directory with model.safetensors or with model.safetensors.index.json and the
  /// files that it lists. Throws DataError, which names the file, for a file that is missing, incomplete or malformed,
  /// and for a tensor that the index lists and its file does not have.
  explicit WeightFiles(const std::string& path, const Renaming& network_name = nullptr);

  const std::string& path() const { return path_; }
  /// By the names in the network.
  const std::map<std::string, Place>& places() const { return places_; }

 private:
  void add_file(const std::string& path, const Renaming& network_name);
  void add_indexed_files(const std::string& directory, const Renaming& network_name);

  std::string path_;
  std::list<SafetensorsFile> files_;
  std::map<std::string, Place> places_;
};

}  // namespace penstock::hf
