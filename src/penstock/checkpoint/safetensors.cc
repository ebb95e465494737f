#include "penstock/checkpoint/safetensors.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <vector>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/utf8.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

constexpr std::uint64_t longest_header = std::uint64_t{100} << 20;
constexpr std::size_t header_alignment = 8;
constexpr const char* metadata_key = "__metadata__";

struct Kind {
  const char* name;
  torch::ScalarType type;
};

constexpr std::array<Kind, 10> kinds{{{"F64", torch::kFloat64},
                                      {"F32", torch::kFloat32},
                                      {"F16", torch::kFloat16},
                                      {"BF16", torch::kBFloat16},
                                      {"I64", torch::kInt64},
                                      {"I32", torch::kInt32},
                                      {"I16", torch::kInt16},
                                      {"I8", torch::kInt8},
                                      {"U8", torch::kUInt8},
                                      {"BOOL", torch::kBool}}};

const char* name_of(const std::string& tensor, torch::ScalarType type) {
  const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& kind) { return kind.type == type; });
  require<ConfigError>(found != kinds.end(), "'", tensor, "' is of ", torch::toString(type),
                       ", which a safetensors file does not hold: convert it first");
  return found->name;
}

struct HeaderEntry {
  std::string name;
  torch::ScalarType type;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;
};

/// Removes the temporary file unless it was renamed.
class PartialFile {
 public:
  explicit PartialFile(fs::path path) : path_(std::move(path)) {}
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  ~PartialFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// `header[key]` as a value of type `Wanted`.
template <class Wanted>
Wanted member(const Json& entry, const char* key, const std::string& where) {
  try {
    return entry.at(key).get<Wanted>();
  } catch (const nlohmann::json::exception&) {
    throw DataError(say(where, ": its header has no valid \"", key, "\""));
  }
}

std::uint64_t whole_number(const Json& number, const std::string& where) {
  require<DataError>(number.is_number_unsigned(), where, ": its header has ", number.dump(),
                     " where an integer, 0 or more, is expected");
  return number.get<std::uint64_t>();
}

HeaderEntry read_part(const std::string& file, const std::string& name, const Json& entry) {
  const std::string where = say("'", file, "', tensor '", name, "'");
  require<DataError>(entry.is_object(), where, ": its header is no object");
  HeaderEntry part{name, torch::kFloat32, {}, 0, 0};
  const auto dtype = member<std::string>(entry, "dtype", where);
  const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& one) { return dtype == one.name; });
  require<DataError>(kind != kinds.end(), where, " is of dtype ", dtype, ", which is not read here");
  part.type = kind->type;
  const auto offsets = member<std::vector<Json>>(entry, "data_offsets", where);
  require<DataError>(offsets.size() == 2, where, " has ", offsets.size(), " data_offsets: there must be 2");
  part.begin = whole_number(offsets[0], where);
  part.end = whole_number(offsets[1], where);
  require<DataError>(part.begin <= part.end, where, " ends at ", part.end, ", before its begin at ", part.begin);
  std::uint64_t bytes = torch::elementSize(part.type);
  bool is_empty = false;
  for (const Json& item : member<std::vector<Json>>(entry, "shape", where)) {
    const std::uint64_t size = whole_number(item, where);
    part.shape.push_back(static_cast<std::int64_t>(size));
    is_empty = is_empty || size == 0;
    require<DataError>(is_empty || size <= std::numeric_limits<std::int64_t>::max() / bytes, where,
                       " claims more elements than there can be");
    if (!is_empty) bytes *= size;
  }
  if (is_empty) bytes = 0;
  require<DataError>(part.end - part.begin == bytes, where, " of shape ", at::IntArrayRef(part.shape), " takes ", bytes,
                     " bytes, but has ", part.end - part.begin);
  return part;
}

/// All entries, ascending by offset. Throws unless they cover the data without gaps.
std::vector<HeaderEntry> in_order(const std::string& file, std::vector<HeaderEntry> parts, std::uint64_t data_bytes) {
  std::stable_sort(parts.begin(), parts.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t at = 0;
  for (const HeaderEntry& part : parts) {
    require<DataError>(part.begin == at, "'", file, "', tensor '", part.name, "' begins at ", part.begin,
                       ", but the one before it ends at ", at);
    at = part.end;
  }
  require<DataError>(at == data_bytes, "'", file, "' promises ", at, " bytes of data and holds ", data_bytes,
                     ": the copy is incomplete or damaged, fetch it again");
  return parts;
}

Json read_header(std::ifstream& in, const std::string& file, std::uint64_t length) {
  std::string text(static_cast<std::size_t>(length), '\0');
  in.read(text.data(), static_cast<std::streamsize>(length));
  require<DataError>(in.good(), "cannot read '", file, "': ", std::strerror(errno));
  Json header = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  require<DataError>(utf8_prefix(text) == text.size(), "'", file,
                     "' is not a safetensors file: its header is not UTF-8 ", "at byte ",
                     sizeof(length) + utf8_prefix(text));
  require<DataError>(header.is_object(), "'", file, "' is not a safetensors file: its header is no JSON object");
  return header;
}

}  // namespace

void write_safetensors(const std::string& path, const WeightFile& file) {
  Json header = Json::object();
  for (const auto& [key, value] : file.metadata)
    for (const std::string* text : {&key, &value})
      require<ConfigError>(utf8_prefix(*text) == text->size(), "the metadata '", printable(key), "' holds '",
                           printable(*text), "', which is not UTF-8, as a safetensors file needs it");
  if (!file.metadata.empty()) header[metadata_key] = file.metadata;
  std::vector<torch::Tensor> data;
  std::uint64_t at = 0;
  for (const auto& [name, tensor] : file.tensors) {
    require<ConfigError>(utf8_prefix(name) == name.size(), "tensor '", printable(name),
                         "': its name is not UTF-8, which a safetensors file needs: give it another name");
    require<ConfigError>(name != metadata_key, "a tensor cannot be called ", metadata_key);
    require<ConfigError>(tensor.defined(), "'", name, "' has no value to write");
    data.push_back(tensor.detach().to(torch::kCPU).contiguous());
    const std::uint64_t end = at + data.back().nbytes();
    header[name] = {{"dtype", name_of(name, tensor.scalar_type())},
                    {"shape", std::vector<std::int64_t>(tensor.sizes().begin(), tensor.sizes().end())},
                    {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + header_alignment - 1) / header_alignment * header_alignment, ' ');

  std::error_code problem;
  const fs::path target = fs::weakly_canonical(fs::absolute(path, problem), problem);
  require<ConfigError>(!path.empty() && fs::is_directory(target.parent_path(), problem), path,
                       ": there is no such folder; make it first");
  require<ConfigError>(!fs::is_directory(target, problem), path, ": is a folder, and a file is to be written");
  const PartialFile partial(target.string() + ".partial-" + std::to_string(::getpid()));
  errno = 0;
  std::ofstream out(partial.path(), std::ios::binary | std::ios::trunc);
  const std::uint64_t length = text.size();
  out.write(reinterpret_cast<const char*>(&length), sizeof(length));
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const torch::Tensor& tensor : data)
    out.write(static_cast<const char*>(tensor.const_data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
  out.close();
  require<Failure>(out.good(), path, ": cannot be written: ", std::strerror(errno));
  fs::rename(partial.path(), target, problem);
  require<Failure>(!problem, path, ": cannot be written: ", problem.message());
}

WeightFile read_safetensors(const std::string& path) {
  std::error_code code;
  const bool is_file = fs::is_regular_file(path, code);
  require<DataError>(is_file, "cannot open '", path, "': ", code ? code.message() : "it is not a regular file");
  const std::uint64_t size = fs::file_size(path, code);
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  require<DataError>(!code && in.is_open(), "cannot open '", path, "': ", code ? code.message() : std::strerror(errno));
  std::uint64_t length = 0;
  require<DataError>(size >= sizeof(length), "'", path, "' is not a safetensors file: it has ", size, " bytes");
  in.read(reinterpret_cast<char*>(&length), sizeof(length));
  require<DataError>(in.good() && length <= longest_header && length <= size - sizeof(length), "'", path,
                     "' is not a safetensors file, or is cut short: it has ", size, " bytes, and claims a header of ",
                     length);
  const Json header = read_header(in, path, length);

  WeightFile file;
  std::vector<HeaderEntry> parts;
  for (const auto& [name, entry] : header.items()) {
    if (name != metadata_key) {
      parts.push_back(read_part(path, name, entry));
      continue;
    }
    require<DataError>(entry.is_object(), "'", path, "': its ", metadata_key, " is no object");
    for (const auto& [key, value] : entry.items()) {
      require<DataError>(value.is_string(), "'", path, "': its ", metadata_key, " '", key, "' is no text");
      file.metadata[key] = value.get<std::string>();
    }
  }
  for (const HeaderEntry& part : in_order(path, std::move(parts), size - sizeof(length) - length)) {
    torch::Tensor tensor = torch::empty(part.shape, part.type);
    in.read(static_cast<char*>(tensor.data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
    require<DataError>(in.good(), "cannot read '", path, "': ", std::strerror(errno));
    if (part.type == torch::kBool) {
      const auto* bytes = static_cast<const std::uint8_t*>(tensor.const_data_ptr());
      require<DataError>(std::all_of(bytes, bytes + tensor.numel(), [](std::uint8_t b) { return b <= 1; }), "'", path,
                         "', tensor '", part.name, "' of dtype BOOL has bytes that are neither 0 nor 1");
    }
    require<DataError>(file.tensors.emplace(part.name, std::move(tensor)).second, "'", path, "' has tensor '",
                       part.name, "' twice");
  }
  return file;
}

}  // namespace penstock
