// The functions under test of the fuzzers of checkpoints' files. The test that replays their corpus calls them too.
// They throw if a property does not hold. Refusing the input is correct.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/checkpoint/checkpoint_reader.h"
#include "penstock/checkpoint/manifest.h"
#include "penstock/checkpoint/safetensors_header.h"
#include "penstock/checkpoint/weight_index.h"
#include "tests/support/temporary_folder.h"

namespace penstock {

/// The folder of this process.
inline const test::TemporaryFolder& fuzz_folder() {
  static const test::TemporaryFolder folder("fuzz_checkpoint");
  return folder;
}

inline void remove_files(const test::TemporaryFolder& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder.string())) std::filesystem::remove(entry.path());
}

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

/// `text` is a list of a process's files as in try_manifest(), a line break, and the JSON of a header. A checkpoint
/// whose manifest has the first of these files, and whose file has this header before some zeros, is opened and read:
/// names, types and shapes of the two may contradict each other. Its checksums are right, so that they hide nothing.
inline void try_checkpoint(std::string_view text) {
  constexpr std::size_t zeros = 24;
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos) return;
  Manifest manifest;
  std::string head(8, '\0');
  const std::string_view header = text.substr(end + 1);
  for (std::size_t i = 0; i < head.size(); ++i) head[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  head += header;
  try {
    manifest.files = read_file_records(sealed(text.substr(0, end)));
    if (manifest.files.empty() || manifest.files.front().kind == FileKind::text) return;
    manifest.files.resize(1);
    FileRecord& file = manifest.files.front();
    file.bytes = head.size() + zeros;
    file.checksum = checksum_of(head);
    for (TensorRecord& tensor : file.tensors) {
      const std::uint64_t size = size_in_bytes(tensor.type, tensor.shape).value_or(zeros + 1);
      if (size <= zeros) tensor.checksum = checksum_of(std::string(static_cast<std::size_t>(size), '\0'));
    }
    const test::TemporaryFolder& folder = fuzz_folder();
    std::ofstream(folder / manifest_name, std::ios::binary) << write_manifest(manifest);
    std::ofstream(folder / file.name, std::ios::binary) << head << std::string(zeros, '\0');
    const Checkpoint checkpoint(folder.string());
    for (const TensorRecord& tensor : file.tensors) {
      std::vector<std::byte> numbers(size_in_bytes(tensor.type, tensor.shape).value());
      checkpoint.read(*checkpoint.find(file.kind, tensor.name), numbers);
      require<InternalError>(numbers == std::vector<std::byte>(numbers.size()), "other bytes were read");
    }
    checkpoint.damage();  // that it has no index
  } catch (const DataError&) {
  } catch (const ConfigError&) {  // a manifest that could not be read back
  }
  remove_files(fuzz_folder());
}

}  // namespace penstock
