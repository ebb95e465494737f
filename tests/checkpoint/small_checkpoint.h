// Checkpoints of a few tensors, for the tests of writing and reading them.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/checkpoint/checkpoint_reader.h"
#include "penstock/checkpoint/checkpoint_writer.h"
#include "penstock/checkpoint/rank_files.h"
#include "tests/support/temporary_folder.h"

namespace penstock::test {

/// Tensors of two ranks, with numbers that depend on the step, and the memory that they are in.
class SmallState {
 public:
  explicit SmallState(std::int64_t step) {
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      RankTensors& tensors = ranks_.emplace_back();
      tensors.owner = rank;
      tensors.ranks = 2;
      const std::string layer = "layer" + std::to_string(rank);
      tensors.model.push_back(tensor(layer + ".weight", {3, 4}, step));
      tensors.model.push_back(tensor(layer + ".bias", {4}, step + 1));
      tensors.model.push_back(count(layer + ".count", step));
      tensors.optimizer.push_back(tensor(layer + ".weight/momentum", {3, 4}, step + 2));
    }
  }
  const std::vector<RankTensors>& ranks() const { return ranks_; }

 private:
  TensorBytes tensor(const std::string& name, const std::vector<std::int64_t>& shape, std::int64_t step) {
    std::size_t size = 1;
    for (const std::int64_t dimension : shape) size *= static_cast<std::size_t>(dimension);
    auto& memory = *numbers_.emplace_back(std::make_unique<std::vector<float>>(size));
    for (std::size_t i = 0; i < size; ++i) memory[i] = static_cast<float>(step) + static_cast<float>(i) / 16;
    return {name, TensorType::f32, shape, std::as_bytes(std::span(memory))};
  }
  TensorBytes count(const std::string& name, std::int64_t step) {
    counts_.push_back(std::make_unique<std::int64_t>(step));
    return {name, TensorType::i64, {}, std::as_bytes(std::span(counts_.back().get(), 1))};
  }

  std::vector<std::unique_ptr<std::vector<float>>> numbers_;
  std::vector<std::unique_ptr<std::int64_t>> counts_;
  std::vector<RankTensors> ranks_;
};

inline Manifest small_manifest(std::int64_t step) {
  Manifest manifest;
  manifest.written_by = "penstock test";
  manifest.step = step;
  manifest.data = {step / 10, step % 10, 7};
  manifest.seed = 18446744073709551615U;
  manifest.bits = {4, 1, 1, "fixed", "fp32", "stream"};
  manifest.states["hook.early_stop"] = {{"best", 0.25}, {"waited", std::int64_t{2}}, {"name", "loss"}};
  return manifest;
}

struct SavedSmall {
  std::string directory;
  std::vector<std::string> removed, remarks;
};

/// Writes a checkpoint of `step` as a job of two ranks does, and removes old ones.
inline SavedSmall save_small(CheckpointWriter& writer, std::int64_t step, SystemCalls& calls) {
  const SmallState state(step);
  Manifest manifest = small_manifest(step);
  const std::string directory = writer.begin(step);
  for (const RankTensors& rank : state.ranks())
    for (FileRecord& file : write_rank_files(calls, directory, rank, {{"model", "small"}}))
      manifest.files.push_back(std::move(file));
  const CommittedCheckpoint committed = writer.commit(std::move(manifest), {{"train.toml", "steps = 7\n"}});
  const RemovedCheckpoints old = writer.remove_old();
  return {committed.directory, old.paths, old.remarks};
}
inline SavedSmall save_small(CheckpointWriter& writer, std::int64_t step) {
  return save_small(writer, step, SystemCalls::real());
}

/// An empty text if the checkpoint has exactly the numbers of its step, else what differs.
inline std::string what_differs(const Checkpoint& checkpoint) {
  const SmallState state(checkpoint.manifest().step);
  for (const RankTensors& rank : state.ranks())
    for (const FileKind kind : {FileKind::model, FileKind::optimizer})
      for (const TensorBytes& tensor : kind == FileKind::model ? rank.model : rank.optimizer) {
        const auto stored = checkpoint.find(kind, tensor.name);
        if (!stored) return "no " + tensor.name;
        std::vector<std::byte> numbers(tensor.bytes.size());
        checkpoint.read(*stored, numbers);
        if (!std::equal(numbers.begin(), numbers.end(), tensor.bytes.begin())) return tensor.name;
      }
  Manifest wanted = small_manifest(checkpoint.manifest().step);
  wanted.files = checkpoint.manifest().files;
  return checkpoint.manifest() == wanted ? "" : "the manifest";
}

/// The step of the newest complete checkpoint, -1 if there is none. Throws if its numbers are not those of its step.
inline std::int64_t newest_step(const std::string& folder) {
  if (!std::filesystem::is_directory(folder)) return -1;
  const NewestCheckpoint newest = newest_checkpoint(folder, CheckpointCheck::checksums);
  if (!newest.checkpoint) return -1;
  const std::string wrong = what_differs(*newest.checkpoint);
  require<InternalError>(wrong.empty(), newest.checkpoint->directory(), " has other numbers: ", wrong);
  return newest.checkpoint->manifest().step;
}

/// Gives a checkpoint another version, as the Penstock of that version would write it.
inline void set_version(const std::string& directory, const std::string& version) {
  const std::string path = directory + "/manifest.json", text = bytes_of_file(path);
  std::string body = text.substr(text.find('\n') + 1);
  const std::size_t at = body.find("\"version\": ") + 11;
  body.replace(at, body.find(',', at) - at, version);
  write_bytes(path, sealed(body));
}

/// The names in a directory.
inline std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace penstock::test
