// The manifest of a checkpoint: everything but its tensors, with the checksums of its files. Plain values, written to
// and read from JSON. docs/checkpoints.md describes the format. Free of LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "penstock/checkpoint/safetensors_header.h"

namespace penstock {

/// XXH3 of 128 bits: it detects accidental damage of files, and does not protect against an attacker.
struct Checksum {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend bool operator==(const Checksum&, const Checksum&) = default;
};

Checksum checksum_of(std::span<const std::byte> bytes);
Checksum checksum_of(std::string_view text);

/// 32 hexadecimal digits, as the program `xxh128sum` prints them.
std::string to_string(const Checksum& checksum);
/// The inverse of to_string(): nothing for any other text.
std::optional<Checksum> checksum_from(std::string_view digits);

/// The checksum of bytes that come in pieces.
class RunningChecksum {
 public:
  RunningChecksum();
  ~RunningChecksum();
  RunningChecksum(const RunningChecksum&) = delete;
  RunningChecksum& operator=(const RunningChecksum&) = delete;

  void add(std::span<const std::byte> bytes);
  /// Of all pieces so far.
  Checksum result() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The state of something that is not a tensor: a learning-rate schedule, a loss scaler, a hook. Text is UTF-8. Numbers
/// read back as the same bits, not-a-number as some not-a-number.
using StateValue = std::variant<std::int64_t, double, std::string>;
using StateValues = std::map<std::string, StateValue>;

/// A member of a state. Throw DataError where it is missing or of another type.
double number_in(const StateValues& values, const std::string& name);
std::int64_t whole_in(const StateValues& values, const std::string& name);
/// Lists of numbers as members NAME.0, NAME.1, ...
void add_numbers(StateValues& values, const std::string& name, const std::vector<double>& numbers);
std::vector<double> numbers_in(const StateValues& values, const std::string& name);

/// The next batch of the training set: a function of these numbers, so that no generator has a state.
struct DataPosition {
  std::int64_t epoch = 0;          // 0-based
  std::int64_t step_in_epoch = 0;  // steps of this epoch that are done
  std::uint64_t seed = 0;          // of the order of samples and of augmentation
  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};

/// The settings on which the bits of results depend. Resuming with equal ones leads to the bits of an undisturbed run.
struct BitSettings {
  std::int64_t micro_batches = 1;
  std::int64_t replicas = 1;
  std::int64_t threads = 1;  // per rank
  std::string kernels = {};
  std::string precision = {};
  std::string grouping = {};  // which weight gradients one product computes
  friend bool operator==(const BitSettings&, const BitSettings&) = default;
};

/// Calls visit(name, member) for each of them, named as in a manifest: the only list of them. `Bits` is BitSettings or
/// const BitSettings.
template <class Bits, class Visit>
void for_each_bit_setting(Bits& bits, Visit&& visit) {
  visit("micro_batches", bits.micro_batches);
  visit("replicas", bits.replicas);
  visit("threads", bits.threads);
  visit("kernels", bits.kernels);
  visit("precision", bits.precision);
  visit("grouping", bits.grouping);
}

/// One line of what differs, "micro-batches 4 instead of 8, precision bf16 instead of fp32": empty if nothing does.
std::string differences(const BitSettings& now, const BitSettings& recorded);

struct TensorRecord {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape = {};
  Checksum checksum = {};  // of the numbers in memory, before they were written
  friend bool operator==(const TensorRecord&, const TensorRecord&) = default;
};

/// Frozen parameters by name, and of those whose values are left out of a checkpoint the checksums of the values.
using FrozenParameters = std::map<std::string, std::optional<Checksum>>;

enum class FileKind {
  model,      // .safetensors: parameters and buffers, by their names
  optimizer,  // .safetensors: state of the optimiser, "layer1.weight/momentum"
  text        // the settings of the run
};

std::string_view to_string(FileKind kind);

struct FileRecord {
  std::string name;  // without a directory
  FileKind kind = FileKind::text;
  std::uint64_t bytes = 0;
  std::optional<std::int64_t> owner = {};  // the pipeline rank; none for text
  std::uint64_t header_bytes = 0;          // before the tensors; 0 for text
  Checksum checksum = {};                  // of these bytes; of the whole file for text
  std::vector<TensorRecord> tensors = {};  // in the order of the file; not written: Checkpoint reads them from the file
  friend bool operator==(const FileRecord&, const FileRecord&) = default;
};

struct Manifest {
  std::string written_by = {};  // program and version, for people
  std::int64_t step = 0;        // training steps that are done
  DataPosition data = {};
  std::uint64_t seed = 0;  // of initial weights and of random numbers such as dropout masks
  BitSettings bits = {};
  std::map<std::string, StateValues> states = {};  // by owner: "learning_rate", "loss_scaler", "hook.early_stop"
  std::vector<FileRecord> files = {};
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// A small file to be stored with a checkpoint, as the settings of the run.
struct CheckpointText {
  std::string name;
  std::string text;
};

struct CommittedCheckpoint {
  std::string directory = {};
  std::int64_t step = 0;
  std::uint64_t bytes = 0;  // of all tensors, with their headers
};

inline constexpr const char* manifest_name = "manifest.json";
inline constexpr std::int64_t manifest_version = 2;
inline constexpr std::uint64_t largest_manifest = std::uint64_t{64} << 20;

/// The text of manifest.json, whose first line has the checksum of the others. Throws ConfigError for a manifest that
/// could not be read back: a file or state whose name is not possible, or text that is not UTF-8.
std::string write_manifest(const Manifest& manifest);
/// The inverse, but for FileRecord::tensors. Of version 1, which has these and no header_bytes, they are read. `file`
/// is named in messages. Throws DataError for damaged and foreign text, and NotReadable for a later version.
Manifest read_manifest(std::string_view text, std::string_view file);

/// The same for the files that one process has written, which are sent to the process that commits the checkpoint.
std::string write_file_records(const std::vector<FileRecord>& files);
std::vector<FileRecord> read_file_records(std::string_view text);

/// Precedes `body`, JSON without its opening brace, by a first line with its checksum: the form of manifest.json.
std::string sealed(std::string_view body);

/// Whether a file of a checkpoint may be called so: letters, digits, '-', '_', '.', not at the start, at most 200.
bool is_plain_file_name(std::string_view name);

}  // namespace penstock
