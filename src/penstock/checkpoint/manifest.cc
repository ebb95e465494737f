#include "penstock/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include <nlohmann/json.hpp>

// The functions are compiled into this file: programs that use Penstock need no libxxhash.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "penstock/base/error.h"
#include "penstock/base/hash.h"
#include "penstock/base/json.h"
#include "penstock/base/text.h"
#include "penstock/checkpoint/durable_files.h"

namespace penstock {
namespace {

constexpr std::size_t half_digits = 16, checksum_digits = 2 * half_digits;

Checksum from_library(const XXH128_hash_t& hash) { return {hash.high64, hash.low64}; }

using nlohmann::ordered_json;

constexpr const char* format_name = "penstock checkpoint";
constexpr std::string_view seal_begin = "{\"checksum\": \"", seal_end = "\",\n";
constexpr std::size_t most_files = 100'000;
constexpr auto most_int64 = std::numeric_limits<std::int64_t>::max();

// Numbers that JSON lacks, and any integer beside which a reader could not tell a whole double.
ordered_json to_json(const StateValue& value) {
  const double* number = std::get_if<double>(&value);
  if (number && std::isnan(*number)) return ordered_json::object({{"number", "nan"}});
  if (number && std::isinf(*number)) return ordered_json::object({{"number", *number > 0 ? "inf" : "-inf"}});
  return std::visit([](const auto& one) { return ordered_json(one); }, value);
}

StateValue state_value(const StrictValue& value) {
  const nlohmann::json& json = value.value();
  if (json.is_number_integer()) return value.whole(std::numeric_limits<std::int64_t>::min(), most_int64);
  if (json.is_number_float()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  require<DataError>(json.is_object(), value.place(), " is neither a number nor text");
  value.require_members({"number"});
  const std::string name = value["number"].text();
  require<DataError>(name == "nan" || name == "inf" || name == "-inf", value["number"].place(), " is '",
                     printable(name), "': nan, inf and -inf are possible");
  if (name == "nan") return std::numeric_limits<double>::quiet_NaN();
  return (name == "inf" ? 1 : -1) * std::numeric_limits<double>::infinity();
}

Checksum checksum_in(const StrictValue& value) {
  const auto checksum = checksum_from(value.text());
  require<DataError>(checksum.has_value(), value.place(), " is not a checksum of ", checksum_digits, " digits");
  return *checksum;
}

TensorRecord tensor_record(const StrictValue& value) {
  value.require_members({"name", "dtype", "shape", "xxh3_128"});
  TensorRecord tensor{value["name"].text()};
  const auto type = tensor_type_of(value["dtype"].text());
  require<DataError>(type.has_value(), value["dtype"].place(), " is '", printable(value["dtype"].text()),
                     "', which is not known");
  tensor.type = *type;
  for (const StrictValue& size : value["shape"].list()) tensor.shape.push_back(size.whole(0, most_int64));
  tensor.checksum = checksum_in(value["xxh3_128"]);
  return tensor;
}

std::string record_line(const FileRecord& file) {
  ordered_json json = {{"name", file.name}, {"kind", to_string(file.kind)}, {"bytes", file.bytes}};
  if (file.owner) json["owner"] = *file.owner;
  if (file.kind != FileKind::text) json["header_bytes"] = file.header_bytes;
  json["xxh3_128"] = to_string(file.checksum);
  return json_text(json);
}

std::string record_lines(const std::vector<FileRecord>& files) {
  std::string text = "\"files\": [";
  for (const FileRecord& file : files) text += (&file == files.data() ? "\n  " : ",\n  ") + record_line(file);
  return text + "]}\n";
}

FileRecord file_record(const StrictValue& value, std::int64_t version) {
  FileRecord file{value["name"].text()};
  const std::string kind = value["kind"].text();
  const auto is = [&](FileKind one) { return kind == to_string(one); };
  require<DataError>(is(FileKind::model) || is(FileKind::optimizer) || is(FileKind::text), value["kind"].place(),
                     " is '", printable(kind), "', which is not known");
  file.kind = is(FileKind::model) ? FileKind::model : is(FileKind::optimizer) ? FileKind::optimizer : FileKind::text;
  file.bytes = value["bytes"].count();
  file.checksum = checksum_in(value["xxh3_128"]);
  if (file.kind == FileKind::text) {
    value.require_members({"name", "kind", "bytes", "xxh3_128"});
    return file;
  }
  file.owner = value["owner"].whole(0, most_int64);
  if (version == 1) {
    value.require_members({"name", "kind", "bytes", "owner", "xxh3_128", "tensors"});
    std::uint64_t left = file.bytes;
    for (const StrictValue& tensor : value["tensors"].list()) {
      const TensorRecord& record = file.tensors.emplace_back(tensor_record(tensor));
      const auto bytes = size_in_bytes(record.type, record.shape);
      require<DataError>(bytes && *bytes <= left, tensor.place(), ": '", printable(record.name), "' of shape ",
                         shape_text(record.shape), " does not fit into the file's ", file.bytes, " bytes");
      left -= *bytes;
    }
  } else {
    value.require_members({"name", "kind", "bytes", "owner", "header_bytes", "xxh3_128"});
    file.header_bytes = value["header_bytes"].count();
  }
  return file;
}

std::vector<FileRecord> file_records(const StrictValue& value, std::int64_t version) {
  std::vector<FileRecord> files;
  for (const StrictValue& file : value.list()) files.push_back(file_record(file, version));
  return files;
}

template <class Error>
void require_valid(const FileRecord& file, std::string_view where) {
  require<Error>(is_plain_file_name(file.name) && file.name != manifest_name, where, " names a file '",
                 printable(file.name), "': letters, digits, '-', '_' and '.' are possible, at most 200");
  require<Error>(file.owner.has_value() == (file.kind != FileKind::text) && (!file.owner || *file.owner >= 0), where,
                 ": '", file.name, "' has a wrong owner");
  require<Error>(file.header_bytes <= file.bytes, where, ": '", file.name, "' has a header of ", file.header_bytes,
                 " bytes, and ", file.bytes, " bytes in all");
}

template <class Error>
void require_valid(const std::vector<FileRecord>& files, std::string_view where) {
  require<Error>(files.size() <= most_files, where, " names ", files.size(), " files: at most ", most_files,
                 " are possible");
  std::set<std::string_view> names;
  for (const FileRecord& file : files) {
    require_valid<Error>(file, where);
    require<Error>(names.insert(file.name).second, where, " names the file '", file.name, "' twice");
  }
}

void require_manifest_text(std::string_view text, std::string_view what) {
  require<ConfigError>(utf8_prefix(text) == text.size(), what, " '", printable(text),
                       "' is not UTF-8, and a checkpoint's manifest is");
}

/// Whether a member of BitSettings is a number; it is a text otherwise.
template <class Member>
constexpr bool is_number = std::is_same_v<std::remove_cvref_t<Member>, std::int64_t>;

void require_writable(const Manifest& manifest) {
  require<ConfigError>(manifest.step >= 0 && manifest.data.epoch >= 0 && manifest.data.step_in_epoch >= 0,
                       "a checkpoint's step, epoch and step in the epoch are ", manifest.step, ", ",
                       manifest.data.epoch, " and ", manifest.data.step_in_epoch, ": 0 or more are possible");
  require_manifest_text(manifest.written_by, "the setting");
  for_each_bit_setting(manifest.bits, [](const char* name, const auto& value) {
    if constexpr (is_number<decltype(value)>)
      require<ConfigError>(value >= 1, "a checkpoint of ", value, " ", name, ": at least 1 is possible");
    else
      require_manifest_text(value, "the setting");
  });
  for (const auto& [owner, values] : manifest.states) {
    require_manifest_text(owner, "the state's name");
    for (const auto& [name, value] : values) {
      require_manifest_text(name, "the state's member");
      if (const auto* text = std::get_if<std::string>(&value)) require_manifest_text(*text, "the state");
    }
  }
  require_valid<ConfigError>(manifest.files, "the checkpoint");
}

/// The text after the seal, as JSON. Throws DataError if the seal is broken.
nlohmann::json opened(std::string_view text, std::string_view file) {
  const std::size_t seal_size = seal_begin.size() + checksum_digits + seal_end.size();
  const auto claimed = checksum_from(text.substr(std::min(text.size(), seal_begin.size()), checksum_digits));
  require<DataError>(text.size() >= seal_size && text.starts_with(seal_begin) && claimed &&
                         text.substr(seal_size - seal_end.size(), seal_end.size()) == seal_end,
                     file, " is not a manifest of a checkpoint, or is damaged: it does not begin with its checksum");
  const Checksum found = checksum_of(text.substr(seal_size));
  require<DataError>(found == *claimed, file, " is damaged: its checksum is ", to_string(found), ", and it claims ",
                     to_string(*claimed));
  return parse_strictly(text, file);
}

template <class T>
T value_in(const StateValues& values, const std::string& name) {
  const auto found = values.find(name);
  const T* value = found == values.end() ? nullptr : std::get_if<T>(&found->second);
  require<DataError>(value, "the checkpoint's state has no '", name, "' of the expected type");
  return *value;
}

StateValues state_values(const StrictValue& state) {
  StateValues values;
  for (const auto& [name, value] : state.members()) values.emplace(name, state_value(value));
  return values;
}

}  // namespace

Checksum checksum_of(std::span<const std::byte> bytes) {
  return from_library(XXH3_128bits(bytes.data(), bytes.size()));
}

Checksum checksum_of(std::string_view text) { return checksum_of(std::as_bytes(std::span(text))); }

std::string to_string(const Checksum& checksum) { return hash_digits(checksum.high) + hash_digits(checksum.low); }

std::optional<Checksum> checksum_from(std::string_view digits) {
  constexpr std::string_view known = "0123456789abcdef";
  if (digits.size() != checksum_digits || digits.find_first_not_of(known) != std::string_view::npos)
    return std::nullopt;
  Checksum checksum;
  std::from_chars(digits.data(), digits.data() + half_digits, checksum.high, 16);
  std::from_chars(digits.data() + half_digits, digits.data() + digits.size(), checksum.low, 16);
  return checksum;
}

struct RunningChecksum::State {
  XXH3_state_t library;
};

RunningChecksum::RunningChecksum() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->library);
  XXH3_128bits_reset(&state_->library);
}

RunningChecksum::~RunningChecksum() = default;

void RunningChecksum::add(std::span<const std::byte> bytes) {
  const XXH_errorcode code = XXH3_128bits_update(&state_->library, bytes.data(), bytes.size());
  require<InternalError>(code == XXH_OK, "a checksum refuses ", bytes.size(), " bytes");
}

Checksum RunningChecksum::result() const { return from_library(XXH3_128bits_digest(&state_->library)); }

double number_in(const StateValues& values, const std::string& name) { return value_in<double>(values, name); }

std::int64_t whole_in(const StateValues& values, const std::string& name) {
  return value_in<std::int64_t>(values, name);
}

void add_numbers(StateValues& values, const std::string& name, const std::vector<double>& numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i) values[say(name, ".", i)] = numbers[i];
}

std::vector<double> numbers_in(const StateValues& values, const std::string& name) {
  std::vector<double> numbers;
  while (values.contains(say(name, ".", numbers.size())))
    numbers.push_back(number_in(values, say(name, ".", numbers.size())));
  return numbers;
}

std::string_view to_string(FileKind kind) {
  return kind == FileKind::model ? "model" : kind == FileKind::optimizer ? "optimizer" : "text";
}

std::string differences(const BitSettings& now, const BitSettings& recorded) {
  std::vector<std::string> former;
  for_each_bit_setting(recorded, [&](const char*, const auto& value) { former.push_back(say(value)); });
  std::string text;
  auto before = former.begin();
  for_each_bit_setting(now, [&](std::string name, const auto& value) {
    std::replace(name.begin(), name.end(), '_', '-');
    if (say(value) != *before) text += say(text.empty() ? "" : ", ", name, " ", value, " instead of ", *before);
    ++before;
  });
  return text;
}

bool is_plain_file_name(std::string_view name) {
  constexpr std::size_t longest = 200;
  return !name.empty() && name.size() <= longest && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
                  c == '.';
         });
}

std::string sealed(std::string_view body) { return say(seal_begin, to_string(checksum_of(body)), seal_end, body); }

std::string write_manifest(const Manifest& manifest) {
  require_writable(manifest);
  ordered_json states = ordered_json::object(), bits = ordered_json::object();
  for_each_bit_setting(manifest.bits, [&](const char* name, const auto& value) { bits[name] = value; });
  for (const auto& [owner, values] : manifest.states) {
    states[owner] = ordered_json::object();
    for (const auto& [name, value] : values) states[owner][name] = to_json(value);
  }
  const ordered_json json = {
      {"format", format_name},
      {"version", manifest_version},
      {"written_by", manifest.written_by},
      {"step", manifest.step},
      {"data",
       {{"epoch", manifest.data.epoch}, {"step_in_epoch", manifest.data.step_in_epoch}, {"seed", manifest.data.seed}}},
      {"seed", manifest.seed},
      {"bits", bits},
      {"states", states},
  };
  std::string text = json_text(json, 1);
  text.replace(text.size() - 2, 2, ",\n ");  // in place of the line break and the closing brace
  return sealed(text.substr(2) + record_lines(manifest.files));
}

Manifest read_manifest(std::string_view text, std::string_view file) {
  const nlohmann::json document = opened(text, file);
  const StrictValue root(document, file);
  require<DataError>(root["format"].text() == format_name, file, " is not a manifest of a checkpoint: its format is '",
                     printable(root["format"].text()), "'");
  const std::int64_t version = root["version"].whole(0, most_int64);
  require<NotReadable>(version >= 1 && version <= manifest_version, file, " has version ", version,
                       ", and this Penstock reads version 1 to ", manifest_version,
                       ": take the Penstock that wrote it, or a later one");
  root.require_members(
      {"checksum", "format", "version", "written_by", "step", "data", "seed", "bits", "states", "files"});
  root["data"].require_members({"epoch", "step_in_epoch", "seed"});
  const auto amount = [](const StrictValue& value) { return value.whole(0, most_int64); };
  const StrictValue data = root["data"], bits = root["bits"];
  Manifest manifest;
  manifest.written_by = root["written_by"].text();
  manifest.step = amount(root["step"]);
  manifest.data = {amount(data["epoch"]), amount(data["step_in_epoch"]), data["seed"].count()};
  manifest.seed = root["seed"].count();
  std::vector<const char*> names;
  for_each_bit_setting(manifest.bits, [&](const char* name, auto& value) {
    names.push_back(name);
    if constexpr (is_number<decltype(value)>)
      value = bits[name].whole(1, most_int64);
    else
      value = bits[name].text();
  });
  bits.require_members(names);
  for (const auto& [owner, state] : root["states"].members()) manifest.states.emplace(owner, state_values(state));
  manifest.files = file_records(root["files"], version);
  require_valid<DataError>(manifest.files, file);
  return manifest;
}

std::string write_file_records(const std::vector<FileRecord>& files) {
  require_valid<ConfigError>(files, "the checkpoint");
  return sealed(record_lines(files));
}

std::vector<FileRecord> read_file_records(std::string_view text) {
  constexpr std::string_view name = "the list of a process's files";
  const nlohmann::json document = opened(text, name);
  const StrictValue root(document, name);
  root.require_members({"checksum", "files"});
  std::vector<FileRecord> files = file_records(root["files"], manifest_version);
  require_valid<DataError>(files, name);
  return files;
}

}  // namespace penstock
