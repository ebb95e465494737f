// JSON that is exactly what a form asks for: no member missing, unknown or given twice. Inside this module only.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace penstock {

/// Parses `text`; `what` names the file in messages ("the cost file"). Throws DataError for what is no JSON, for a
/// member given twice and for values that nest deeper than any form of ours.
nlohmann::json parse_strictly(std::string_view text, std::string_view what);

/// Text that ends with a line break, as a list of its lines: it reads better.
nlohmann::ordered_json lines_of(const std::string& text);

/// One value of a document and the way to it. Every question throws DataError when the answer is no.
/// It refers to the document and to `what`, which must outlive it.
class StrictValue {
 public:
  StrictValue(const nlohmann::json& value, std::string_view what) : value_(&value), what_(what) {}

  /// A member of an object.
  StrictValue operator[](const char* key) const;
  bool has(const char* key) const { return value_->is_object() && value_->contains(key); }
  /// That the value is an object without any other members.
  void require_rank_contexts(std::initializer_list<const char*> known) const;

  std::vector<StrictValue> list() const;
  std::string text() const;
  /// What lines_of() gave.
  std::string lines() const;
  /// Finite and not negative.
  double amount() const;
  /// 0 to 1.
  double share() const;
  std::int64_t whole(std::int64_t least, std::int64_t most) const;

  /// "the cost file's layers[2].name".
  std::string place() const;

 private:
  StrictValue(const nlohmann::json& value, std::string_view what, std::string path)
      : value_(&value), what_(what), path_(std::move(path)) {}

  const nlohmann::json* value_;
  std::string_view what_;
  std::string path_;
};

}  // namespace penstock
