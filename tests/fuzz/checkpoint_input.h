// The functions under test of the fuzzers of checkpoints' files. The test that replays their corpus calls them too.
// They throw if a property does not hold. Refusing the input is correct.
#pragma once

#include <string_view>

#include "penstock/base/error.h"
#include "penstock/checkpoint/manifest.h"
#include "penstock/checkpoint/safetensors_header.h"
#include "penstock/checkpoint/weight_index.h"

namespace penstock {

/// `text` is manifest.json, or the list of a process's files, without its first line, whose checksum no fuzzer would
/// guess. A reader knows which of them it is by its name; here only a manifest has a format.
inline void try_manifest(std::string_view text) {
  try {
    read_manifest(text, "the manifest");
  } catch (const DataError&) {
  }
  Manifest manifest;
  try {
    if (text.find("\"format\"") == std::string_view::npos) return static_cast<void>(read_file_records(sealed(text)));
    manifest = read_manifest(sealed(text), "the manifest");
  } catch (const DataError&) {
    return;
  }
  // As text: a value that is not a number differs from itself.
  const std::string written = write_manifest(manifest);
  require<InternalError>(write_manifest(read_manifest(written, "the manifest")) == written, "it does not read back");
}

inline void try_weight_index(std::string_view text) {
  WeightIndex index;
  try {
    index = read_weight_index(text, "the index");
  } catch (const DataError&) {
    return;
  }
  require<InternalError>(read_weight_index(write_weight_index(index), "the index") == index, "it does not read back");
}

/// `text` is the JSON of a header. Its tensors' bytes are as many as the last offset in it says, or none.
inline void try_safetensors(std::string_view text) {
  constexpr std::uint64_t some_bytes = 24;
  for (const std::uint64_t data_bytes : {std::uint64_t{0}, some_bytes}) {
    SafetensorsHeader header;
    try {
      header = read_safetensors_header(text, data_bytes, "the file");
    } catch (const DataError&) {
      continue;
    }
    std::vector<TensorBytes> tensors;
    for (const TensorPlace& place : header.tensors) tensors.push_back({place.name, place.type, place.shape});
    const SafetensorsHeader placed = place_tensors(tensors, header.metadata);
    const std::string prefix = safetensors_prefix(placed);
    const auto again = read_safetensors_header(std::string_view(prefix).substr(8), data_bytes, "the file");
    require<InternalError>(again == placed, "the header does not read back");
  }
}

}  // namespace penstock
