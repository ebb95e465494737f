// JSON: written with plain errors, and read strictly: no member may be missing, unknown or duplicated. Not for public
// headers: only our own source files find nlohmann_json.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

/// The text of `value`: one line, or lines with `indent` spaces for each level. Names are free text, so bytes that are
/// not UTF-8 become replacement characters.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

/// As json_text(), but throws DataError for bytes that are not UTF-8; `what` names the value ("this plan").
std::string exact_json_text(const nlohmann::ordered_json& value, std::string_view what, int indent);

/// The document of a text that Penstock itself wrote, with the members of its objects in their order. Throws
/// nlohmann::json::exception for any other text.
nlohmann::ordered_json parse_in_order(std::string_view text);

/// One line that describes `error`, which nlohmann::json found in `text`. `what` names the text ("the trace"). The line
/// has the position of the error, and a hint if the text is truncated.
std::string complaint_about_json(std::string_view text, std::string_view what, const nlohmann::json::exception& error);

/// Parses `text`; `what` names the file in messages ("the cost file"). Throws DataError for invalid JSON, for anything
/// but an object, for a duplicated member and for values that nest deeper than in any of our file formats, before it
/// builds the document.
nlohmann::json parse_strictly(std::string_view text, std::string_view what);

/// The lines of `text`, which ends with a line break, as a JSON list: it is easier to read than one string.
nlohmann::ordered_json lines_of(const std::string& text);

/// A value of a document and its path. All functions but has(), has_value() and place() throw DataError if the value is not of the
/// required kind. Refers to the document and to `what`, which must outlive it.
class StrictValue {
 public:
  StrictValue(const nlohmann::json& value, std::string_view what) : value_(&value), what_(what) {}

  /// A member of an object.
  StrictValue operator[](const char* key) const;
  bool has(const char* key) const { return value_->is_object() && value_->contains(key); }
  /// The same, and the member is not null.
  bool has_value(const char* key) const { return has(key) && !value_->at(key).is_null(); }
  /// Requires that the value is an object without other members.
  void require_members(const std::vector<const char*>& known) const;

  /// Requires that this is an object whose member `key` is `version`. `hint` ends the message where there is none.
  void require_version(const char* key, int version, std::string_view hint = "") const;

  std::vector<StrictValue> list() const;
  /// All members of an object, by their names.
  std::vector<std::pair<std::string, StrictValue>> members() const;
  std::string text() const;
  bool boolean() const;
  /// The text from a list of its lines: the inverse of lines_of().
  std::string lines() const;
  /// A number that is finite and not negative.
  double amount() const;
  /// A number from 0 to 1.
  double share() const;
  /// An integer from `least` to `most`.
  std::int64_t whole(std::int64_t least, std::int64_t most) const;
  /// An integer from 0 to 2^64 - 1.
  std::uint64_t count() const;
  const nlohmann::json& value() const { return *value_; }

  /// The path for messages, as "the cost file's layers[2].name". It is composed where it is written with operator<<,
  /// so that values without an error cost nothing.
  struct Place {
    const StrictValue& value;
  };
  Place place() const { return {*this}; }
  friend std::ostream& operator<<(std::ostream& out, const Place& place);

 private:
  StrictValue(const nlohmann::json& value, std::string_view what, std::string path)
      : value_(&value), what_(what), path_(std::move(path)) {}

  const nlohmann::json* value_;
  std::string_view what_;
  std::string path_;
};

}  // namespace penstock
