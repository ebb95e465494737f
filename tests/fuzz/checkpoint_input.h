// The functions under test of the fuzzers of checkpoints' files. The test that replays their corpus calls them too.
// They throw if a property does not hold. Refusing the input is correct.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/checkpoint/checkpoint_reader.h"
#include "penstock/checkpoint/manifest.h"
#include "penstock/checkpoint/safetensors_header.h"
#include "tests/base/error_text.h"
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
  test::accepted<DataError>([&] { return read_manifest(text, "the manifest"); });
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

/// `text` is the JSON of a header. Its tensors' bytes are as many as the last offset in it says, or none.
inline void try_safetensors(std::string_view text) {
  constexpr std::uint64_t some_bytes = 24;
  for (const std::uint64_t data_bytes : {std::uint64_t{0}, some_bytes}) {
    const auto header =
        test::accepted<DataError>([&] { return read_safetensors_header(text, data_bytes, "the file"); });
    if (!header) continue;
    std::vector<TensorBytes> tensors;
    for (const TensorPlace& place : header->tensors) tensors.push_back({place.name, place.type, place.shape});
    const SafetensorsHeader placed = place_tensors(tensors, header->metadata);
    const std::string prefix = safetensors_prefix(placed);
    const auto again = read_safetensors_header(std::string_view(prefix).substr(8), data_bytes, "the file");
    require<InternalError>(again == placed, "the header does not read back");
  }
}

/// The text of a manifest of version 1 whose files are `files`, as "\"files\": [...]}".
inline std::string text_of_version_1(std::string_view files) {
  return say(R"("format": "penstock checkpoint", "version": 1, "written_by": "", "step": 0, )",
             R"("data": {"epoch": 0, "step_in_epoch": 0, "seed": 0}, "seed": 0, "bits": {"micro_batches": 1, )",
             R"("replicas": 1, "threads": 1, "kernels": "", "precision": "", "grouping": ""}, "states": {}, )", files);
}

/// manifest.json of version 1 with one file.
inline std::string manifest_of_version_1(const FileRecord& file) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const TensorRecord& tensor : file.tensors)
    tensors.push_back({{"name", tensor.name},
                       {"dtype", to_string(tensor.type)},
                       {"shape", tensor.shape},
                       {"xxh3_128", to_string(tensor.checksum)}});
  const nlohmann::json json = {{"name", file.name},
                               {"kind", to_string(file.kind)},
                               {"bytes", file.bytes},
                               {"owner", file.owner.value_or(0)},
                               {"xxh3_128", to_string(file.checksum)},
                               {"tensors", tensors}};
  return sealed(text_of_version_1(say("\"files\": [", json.dump(), "]}")));
}

/// The members of `header`, JSON, preceded by metadata with the checksums of its tensors, which consist of zeros; a
/// fuzzer would not guess them. `header` itself if it has no tensors.
inline std::string with_checksums(std::string_view header, std::uint64_t zeros) {
  std::string sums;
  for (const TensorPlace& place : read_safetensors_header(header, zeros, "the file").tensors)
    sums += (sums.empty() ? "" : " ") + to_string(checksum_of(std::string(place.end - place.begin, '\0')));
  const std::size_t brace = header.find('{') + 1;
  return sums.empty()
             ? std::string(header)
             : say(header.substr(0, brace), R"("__metadata__":{"xxh3_128":")", sums, R"("},)", header.substr(brace));
}

/// `text` is a list of files as in the manifest of version 1, or empty, a line break, and the JSON of a header. A
/// checkpoint whose file has this header before some zeros is opened and read: of version 1 with the first of the files,
/// whose names, types and shapes may contradict the header, and of the present version. The checksums of manifest and
/// header are right, so that they hide nothing.
inline void try_checkpoint(std::string_view text) {
  constexpr std::size_t zeros = 24;
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos) return;
  const auto read_all = [&](Manifest manifest, std::string_view header) {
    std::string head(8, '\0');
    for (std::size_t i = 0; i < head.size(); ++i) head[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
    head += header;
    manifest.files.resize(1);
    FileRecord& file = manifest.files.front();
    if (file.kind == FileKind::text) return;
    file.bytes = head.size() + zeros;
    file.checksum = checksum_of(head);
    std::string written;
    if (file.tensors.empty()) {
      file.header_bytes = head.size();
      written = write_manifest(manifest);
    } else {
      written = manifest_of_version_1(file);
    }
    const test::TemporaryFolder& folder = fuzz_folder();
    std::ofstream(folder / manifest_name, std::ios::binary) << written;
    std::ofstream(folder / file.name, std::ios::binary) << head << std::string(zeros, '\0');
    const Checkpoint checkpoint(folder.string());
    for (const TensorRecord& tensor : checkpoint.manifest().files.front().tensors) {
      std::vector<std::byte> numbers(size_in_bytes(tensor.type, tensor.shape).value());
      checkpoint.read(*checkpoint.find(file.kind, tensor.name), numbers);
      require<InternalError>(numbers == std::vector<std::byte>(numbers.size()), "other bytes were read");
    }
    require<InternalError>(checkpoint.damage().empty(), "it is damaged");
  };
  const auto attempt = [&](const auto& work) {
    try {
      work();
    } catch (const DataError&) {
    } catch (const ConfigError&) {  // a manifest that could not be read back
    }
    remove_files(fuzz_folder());
  };
  const std::string_view header = text.substr(end + 1);
  attempt([&] {
    Manifest manifest = read_manifest(sealed(text_of_version_1(text.substr(0, end))), "the manifest");
    if (manifest.files.empty()) return;
    for (TensorRecord& tensor : manifest.files.front().tensors) {
      const std::uint64_t size = size_in_bytes(tensor.type, tensor.shape).value_or(zeros + 1);
      if (size <= zeros) tensor.checksum = checksum_of(std::string(static_cast<std::size_t>(size), '\0'));
    }
    read_all(std::move(manifest), header);
  });
  attempt([&] {
    Manifest manifest;
    manifest.files = {{.name = "m", .kind = FileKind::model, .owner = 0}};
    read_all(std::move(manifest), with_checksums(header, zeros));
  });
}

}  // namespace penstock
