#include "penstock/checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

struct TypeRow {
  TensorType type;
  std::string_view name;
  std::size_t bytes;
};

constexpr std::array<TypeRow, 15> type_rows{{{TensorType::boolean, "BOOL", 1},
                                             {TensorType::u8, "U8", 1},
                                             {TensorType::i8, "I8", 1},
                                             {TensorType::f8_e5m2, "F8_E5M2", 1},
                                             {TensorType::f8_e4m3, "F8_E4M3", 1},
                                             {TensorType::i16, "I16", 2},
                                             {TensorType::u16, "U16", 2},
                                             {TensorType::f16, "F16", 2},
                                             {TensorType::bf16, "BF16", 2},
                                             {TensorType::i32, "I32", 4},
                                             {TensorType::u32, "U32", 4},
                                             {TensorType::f32, "F32", 4},
                                             {TensorType::f64, "F64", 8},
                                             {TensorType::i64, "I64", 8},
                                             {TensorType::u64, "U64", 8}}};

const TypeRow& row_of(TensorType type) { return type_rows[static_cast<std::size_t>(type)]; }

using Sax = nlohmann::json_sax<nlohmann::json>;

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

constexpr std::size_t header_alignment = 8;
constexpr int deepest_ignored = 32;

/// Receives the JSON's events and collects the tensors. There is no tree of the whole document: it would take many
/// times the memory of the text. Anything unexpected ends the reading at once.
class HeaderEvents : public Sax {
 public:
  HeaderEvents(std::uint64_t data_bytes, std::string_view file) : data_bytes_(data_bytes), file_(file) {}

  SafetensorsHeader take() { return std::move(header_); }
  const std::string& syntax_error() const { return syntax_error_; }

  bool null() override { return other("null"); }
  bool boolean(bool value) override { return other(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return other(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { return other(text); }
  bool binary(binary_t&) override { return other("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (in_ == In::shape) {
      require<DataError>(value <= most_int64, tensor(), " claims more elements than there can be");
      require<DataError>(place_.shape.size() < most_tensor_dimensions, tensor(), " has more than ",
                         most_tensor_dimensions, " dimensions");
      place_.shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (in_ == In::offsets) {
      if (offsets_ < 2) (offsets_ == 0 ? place_.begin : place_.end) = value;
      ++offsets_;
      return true;
    }
    return other(std::to_string(value));
  }

  bool string(string_t& value) override {
    if (in_ == In::dtype) {
      const auto type = tensor_type_of(value);
      require<DataError>(type.has_value(), tensor(), " is of dtype ", printable(value), ", which is not read here");
      place_.type = *type;
      in_ = In::tensor;
      return true;
    }
    if (in_ == In::metadata_value) {
      require<DataError>(header_.metadata.emplace(key_, std::move(value)).second, "'", file_, "': its ",
                         safetensors_metadata_key, " has '", printable(key_), "' twice");
      in_ = In::metadata;
      return true;
    }
    return other('"' + printable(value) + '"');
  }

  bool start_object(std::size_t) override {
    switch (in_) {
      case In::document: in_ = In::file; return true;
      case In::entry: begin_tensor(); return true;
      case In::metadata_entry: in_ = In::metadata; return true;
      case In::ignored: return deeper();
      default: return other("an object");
    }
  }

  bool key(string_t& name) override {
    switch (in_) {
      case In::file:
        if (name == safetensors_metadata_key) {
          require<DataError>(!has_metadata_, "'", file_, "' has ", safetensors_metadata_key, " twice");
          has_metadata_ = true;
          in_ = In::metadata_entry;
        } else {
          require<DataError>(header_.tensors.size() < most_safetensors_tensors, "'", file_, "' has more than ",
                             most_safetensors_tensors, " tensors");
          place_ = {std::move(name)};
          in_ = In::entry;
        }
        return true;
      case In::metadata:
        key_ = std::move(name);
        in_ = In::metadata_value;
        return true;
      case In::tensor: in_ = member(name); return true;
      default: return true;  // of an ignored value
    }
  }

  bool end_object() override {
    if (in_ == In::ignored) return shallower();
    if (in_ == In::tensor) end_tensor();
    in_ = in_ == In::file ? In::document : In::file;
    return true;
  }

  bool start_array(std::size_t) override {
    if (in_ == In::member_shape || in_ == In::member_offsets) {
      in_ = in_ == In::member_shape ? In::shape : In::offsets;
      return true;
    }
    return in_ == In::ignored ? deeper() : other("a list");
  }

  bool end_array() override {
    if (in_ == In::ignored) return shallower();
    in_ = In::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    syntax_error_ = say("invalid JSON at byte ", position);
    return false;
  }

 private:
  enum class In {
    document,        // the value is the document
    file,            // its members are tensors
    entry,           // the value is a tensor
    tensor,          // its members follow
    dtype,           // the value is the dtype
    member_shape,    // the value is the list
    shape,           // its elements follow
    member_offsets,  // the value is the list
    offsets,         // its elements follow
    metadata_entry,  // the value is the metadata
    metadata,        // their members follow
    metadata_value,  // the value is text
    ignored          // the value of an unknown member of a tensor
  };

  static constexpr auto most_int64 = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

  std::string tensor() const { return say("'", file_, "', tensor '", printable(place_.name), "'"); }

  void begin_tensor() {
    in_ = In::tensor;
    has_dtype_ = has_shape_ = has_offsets_ = false;
    offsets_ = 0;
  }

  In member(const std::string& name) {
    const auto once = [&](bool& has, In next) {
      require<DataError>(!has, tensor(), " has \"", name, "\" twice");
      has = true;
      return next;
    };
    if (name == "dtype") return once(has_dtype_, In::dtype);
    if (name == "shape") return once(has_shape_, In::member_shape);
    if (name == "data_offsets") return once(has_offsets_, In::member_offsets);
    return In::ignored;
  }

  void end_tensor() {
    const char* missing = !has_dtype_ ? "dtype" : !has_shape_ ? "shape" : !has_offsets_ ? "data_offsets" : nullptr;
    require<DataError>(!missing, tensor(), ": its header has no valid \"", missing ? missing : "", "\"");
    require<DataError>(offsets_ == 2, tensor(), " has ", offsets_, " data_offsets: there must be 2");
    require<DataError>(place_.begin <= place_.end, tensor(), " ends at ", place_.end, ", before its start at ",
                       place_.begin);
    const auto bytes = size_in_bytes(place_.type, place_.shape);
    require<DataError>(bytes.has_value(), tensor(), " claims more elements than there can be");
    require<DataError>(place_.end - place_.begin == *bytes, tensor(), " of shape ", shape_text(place_.shape), " takes ",
                       *bytes, " bytes, but has ", place_.end - place_.begin);
    // At once, so that a header that promises much costs nothing.
    require<DataError>(place_.end <= data_bytes_, "'", file_, "' promises ", place_.end, " bytes of data and holds ",
                       data_bytes_, ": the copy is incomplete or damaged, fetch it again");
    header_.tensors.push_back(std::move(place_));
  }

  bool deeper() {
    require<DataError>(++ignored_depth_ <= deepest_ignored, tensor(), " has a member that nests deeper than ",
                       deepest_ignored, " levels");
    return true;
  }
  bool shallower() {
    if (--ignored_depth_ == 0) in_ = In::tensor;
    return true;
  }

  /// A value where `in_` expects another one.
  bool other(std::string_view found) {
    switch (in_) {
      case In::document:
        throw DataError(say("'", file_, "' is not a safetensors file: its header is not a JSON object"));
      case In::entry: throw DataError(say(tensor(), ": its header is not an object"));
      case In::dtype: throw DataError(say(tensor(), ": its header has no valid \"dtype\""));
      case In::member_shape: throw DataError(say(tensor(), ": its header has no valid \"shape\""));
      case In::member_offsets: throw DataError(say(tensor(), ": its header has no valid \"data_offsets\""));
      case In::shape:
      case In::offsets:
        throw DataError(say(tensor(), ": its header has ", found, ", but an integer, 0 or more, is expected"));
      case In::metadata_entry:
        throw DataError(say("'", file_, "': its ", safetensors_metadata_key, " is not an object"));
      case In::metadata_value:
        throw DataError(say("'", file_, "': its ", safetensors_metadata_key, " '", printable(key_), "' is not text"));
      case In::ignored:
        if (ignored_depth_ == 0) in_ = In::tensor;
        return true;
      case In::file:
      case In::tensor:
      case In::metadata: break;  // the parser expects a key there
    }
    throw InternalError(say("a header's reader meets ", found, " between two members"));
  }

  std::uint64_t data_bytes_;
  std::string_view file_;
  SafetensorsHeader header_;
  std::string syntax_error_;
  In in_ = In::document;
  TensorPlace place_;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false, has_metadata_ = false;
  int offsets_ = 0;
  int ignored_depth_ = 0;
  std::string key_;
};

/// A name that several tensors have, for messages; none if all names are unique.
std::optional<std::string> repeated_name(const std::vector<TensorPlace>& tensors) {
  std::vector<std::string_view> names;
  for (const TensorPlace& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  return twice == names.end() ? std::nullopt : std::optional(printable(*twice));
}

/// Sorts the tensors by place. Throws unless they cover the data without gaps.
void put_in_order(std::vector<TensorPlace>& tensors, std::uint64_t data_bytes, std::string_view file) {
  // Stable: tensors without elements share a place, and stay in the order in which they are written.
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorPlace& a, const TensorPlace& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  std::uint64_t at = 0;
  for (const TensorPlace& tensor : tensors) {
    require<DataError>(tensor.begin == at, "'", file, "', tensor '", printable(tensor.name), "' begins at ",
                       tensor.begin, ", but the one before it ends at ", at);
    at = tensor.end;
  }
  require<DataError>(at == data_bytes, "'", file, "' promises ", at, " bytes of data and holds ", data_bytes,
                     ": the copy is incomplete or damaged, fetch it again");
}

/// The bytes of a text that comes in pieces, as an input iterator for the JSON library.
class PieceIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  PieceIterator() = default;  // the end
  PieceIterator(const NextPiece& next, std::string_view file) : next_(&next), file_(file) { take_next(); }

  reference operator*() const { return piece_.front(); }
  PieceIterator& operator++() {
    note(piece_.front());
    piece_.remove_prefix(1);
    if (piece_.empty()) take_next();
    return *this;
  }
  PieceIterator operator++(int) {
    PieceIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const PieceIterator& a, const PieceIterator& b) {
    return a.piece_.empty() == b.piece_.empty();
  }

  std::string_view piece() const { return piece_; }

 private:
  /// The JSON library holds a text, or the blanks before one, several times.
  void note(char c) {
    constexpr std::size_t longest = std::size_t{8} << 20;
    const bool was_escaped = std::exchange(is_escaped_, in_text_ && !is_escaped_ && c == '\\');
    const bool is_quote = c == '"' && !was_escaped;
    if (is_quote) in_text_ = !in_text_;
    const bool ends = is_quote || (!in_text_ && std::string_view("{}[]:,").find(c) != std::string_view::npos);
    length_ = ends ? 0 : length_ + 1;
    require<DataError>(length_ <= longest, "'", file_, "' has a text or blanks of more than ", longest,
                       " bytes in its header");
  }

  void take_next() {
    taken_ += size_;
    piece_ = (*next_)();
    size_ = piece_.size();
    // The JSON library takes a NUL for the end of the text.
    const std::size_t nul = piece_.find('\0');
    require<DataError>(nul == std::string_view::npos, "'", file_, "' is not a safetensors file: its header has a NUL ",
                       "at byte ", sizeof(std::uint64_t) + taken_ + nul);
  }

  const NextPiece* next_ = nullptr;
  std::string_view file_;
  std::string_view piece_;
  std::uint64_t taken_ = 0;  // bytes of the pieces before
  std::size_t size_ = 0;     // of this piece
  bool in_text_ = false, is_escaped_ = false;
  std::size_t length_ = 0;  // of the text, number or blanks so far
};

std::string five_digits(std::size_t number) {
  const std::string digits = std::to_string(number);
  return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
}

void require_utf8(const std::string& text, const std::string& what) {
  require<ConfigError>(utf8_prefix(text) == text.size(), what, ", which is not UTF-8, as a safetensors file needs it");
}

}  // namespace

std::string_view to_string(TensorType type) { return row_of(type).name; }

std::optional<TensorType> tensor_type_of(std::string_view name) {
  const auto row =
      std::find_if(type_rows.begin(), type_rows.end(), [&](const TypeRow& one) { return one.name == name; });
  if (row == type_rows.end()) return std::nullopt;
  return row->type;
}

std::size_t bytes_per_element(TensorType type) { return row_of(type).bytes; }

std::optional<std::uint64_t> size_in_bytes(TensorType type, std::span<const std::int64_t> shape) {
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t bytes = bytes_per_element(type);
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    const auto factor = static_cast<std::uint64_t>(size);
    if (bytes > 0 && factor > most / bytes) return std::nullopt;
    bytes *= factor;
  }
  return bytes;
}

std::string shape_text(std::span<const std::int64_t> shape) { return say("[", listed(shape), "]"); }

std::string shard_name(std::string_view stem, const ShardNumber& shard) {
  return say(stem, "-", five_digits(shard.index + 1), "-of-", five_digits(shard.count), ".safetensors");
}

SafetensorsHeader read_safetensors_header(std::string_view json, std::uint64_t data_bytes, std::string_view file) {
  bool is_taken = false;
  return read_safetensors_header([&] { return std::exchange(is_taken, true) ? std::string_view() : json; }, data_bytes,
                                 file);
}

SafetensorsHeader read_safetensors_header(const NextPiece& json, std::uint64_t data_bytes, std::string_view file) {
  HeaderEvents events(data_bytes, file);
  const PieceIterator begin(json, file);
  // The JSON library skips a byte-order mark.
  const bool has_mark = begin.piece().starts_with('\xef');
  const bool is_json = !has_mark && nlohmann::json::sax_parse(begin, PieceIterator(), &events);
  require<DataError>(is_json, "'", file, "' is not a safetensors file: its header is not a JSON object",
                     events.syntax_error().empty() ? "" : ": ", events.syntax_error());
  SafetensorsHeader header = events.take();
  const std::optional<std::string> twice = repeated_name(header.tensors);
  require<DataError>(!twice, "'", file, "' has tensor '", twice.value_or(""), "' twice");
  put_in_order(header.tensors, data_bytes, file);
  return header;
}

SafetensorsHeader place_tensors(const std::vector<TensorBytes>& tensors, std::map<std::string, std::string> metadata) {
  SafetensorsHeader header;
  for (const auto& [key, value] : metadata)
    for (const std::string* text : {&key, &value})
      require_utf8(*text, say("the metadata '", printable(key), "' holds '", printable(*text), "'"));
  header.metadata = std::move(metadata);
  for (const TensorBytes& tensor : tensors) {
    require_utf8(tensor.name, say("tensor '", printable(tensor.name), "' has a name"));
    require<ConfigError>(tensor.name != safetensors_metadata_key, "a tensor cannot be called ",
                         safetensors_metadata_key);
    require<ConfigError>(tensor.shape.size() <= most_tensor_dimensions, "tensor '", printable(tensor.name), "' has ",
                         tensor.shape.size(), " dimensions: at most ", most_tensor_dimensions, " can be written");
    header.tensors.push_back({tensor.name, tensor.type, tensor.shape});
  }
  require<ConfigError>(tensors.size() <= most_safetensors_tensors, "one file is to hold ", tensors.size(),
                       " tensors: at most ", most_safetensors_tensors, " can be written");
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorPlace& a, const TensorPlace& b) {
    return std::tie(b.type, a.name) < std::tie(a.type, b.name);
  });
  std::uint64_t at = 0;
  for (TensorPlace& tensor : header.tensors) {
    const auto bytes = size_in_bytes(tensor.type, tensor.shape);
    require<ConfigError>(bytes && *bytes <= std::numeric_limits<std::int64_t>::max() - at, "tensor '",
                         printable(tensor.name), "' of shape ", shape_text(tensor.shape), " is larger than a file");
    tensor.begin = at;
    tensor.end = at += *bytes;
  }
  const std::optional<std::string> twice = repeated_name(header.tensors);
  require<ConfigError>(!twice, "two tensors of one file are called '", twice.value_or(""), "'");
  return header;
}

std::string safetensors_prefix(const SafetensorsHeader& header) {
  std::string text = "{";
  // Member by member: an ordered object of the JSON library takes quadratic time.
  const auto append = [&](std::string_view name, const nlohmann::ordered_json& value) {
    text += say(text.size() > 1 ? "," : "", json_text(nlohmann::ordered_json(name)), ":", json_text(value));
  };
  if (!header.metadata.empty()) append(safetensors_metadata_key, header.metadata);
  for (const TensorPlace& tensor : header.tensors)
    append(tensor.name,
           {{"dtype", to_string(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, tensor.end}}});
  text += "}";
  text.resize((text.size() + header_alignment - 1) / header_alignment * header_alignment, ' ');
  require<ConfigError>(text.size() <= longest_safetensors_header, "the header of a file would have ", text.size(),
                       " bytes: at most ", longest_safetensors_header, " can be written");
  const std::uint64_t length = text.size();
  std::string prefix(sizeof(length), '\0');
  std::memcpy(prefix.data(), &length, sizeof(length));
  return prefix + text;
}

}  // namespace penstock
