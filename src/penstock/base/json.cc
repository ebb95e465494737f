#include "penstock/base/json.h"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <set>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {

using nlohmann::json;

namespace {

template <class Json>
std::string with_replacements(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

/// Receives the events of the parser and builds nothing. Throws at the first deviation. (The library's parser with a
/// callback would build the document meanwhile, and takes quadratic time for a list of objects.)
class FormCheck : public nlohmann::json_sax<json> {
 public:
  FormCheck(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  bool null() override { return scalar(); }
  bool boolean(bool) override { return scalar(); }
  bool number_integer(number_integer_t) override { return scalar(); }
  bool number_unsigned(number_unsigned_t) override { return scalar(); }
  bool number_float(number_float_t, const string_t&) override { return scalar(); }
  bool string(string_t&) override { return scalar(); }
  bool binary(binary_t&) override { return scalar(); }

  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool end_object() override {
    const bool is_in_list = open_.size() > 1 && !open_[open_.size() - 2].is_object;
    // None of our formats has one, and it takes the most memory for its text.
    require<DataError>(!is_in_list || !open_.back().members.empty(), what_, " has an empty object in a list");
    return close();
  }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (open_.back().members.insert(name).second) return true;
    throw DataError(say(what_, " has the member '", printable(name), "' twice in one object"));
  }

  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    throw DataError(complaint_about_json(text_, what_, error));
  }

 private:
  static constexpr std::size_t deepest = 8;

  void require_place(bool may_be_root) const {
    require<DataError>(may_be_root || !open_.empty(), what_, " is not a JSON object");
    require<DataError>(open_.size() <= deepest, what_, " nests deeper than ", deepest, " levels");
  }
  bool scalar() const {
    require_place(false);
    return true;
  }
  bool open(bool is_object) {
    require_place(is_object);
    open_.push_back({is_object, {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  struct Container {
    bool is_object;
    std::set<std::string> members;
  };

  std::string_view text_, what_;
  std::vector<Container> open_;
};

}  // namespace

// Compiled only here, because each source file that writes or parses JSON takes the compiler seconds.
std::string json_text(const nlohmann::json& value, int indent) { return with_replacements(value, indent); }

std::string json_text(const nlohmann::ordered_json& value, int indent) { return with_replacements(value, indent); }

std::string exact_json_text(const nlohmann::ordered_json& value, std::string_view what, int indent) {
  try {
    return value.dump(indent);
  } catch (const nlohmann::json::exception&) {
    throw DataError(say(what, " cannot be written: a name in it is not UTF-8 text"));
  }
}

nlohmann::ordered_json parse_in_order(std::string_view text) { return nlohmann::ordered_json::parse(text); }

std::string complaint_about_json(std::string_view text, std::string_view what, const nlohmann::json::exception& error) {
  const auto* parse_error = dynamic_cast<const nlohmann::json::parse_error*>(&error);
  // Removes the number and the position from the library's message; each ends with a colon or bracket.
  std::string message = error.what();
  if (const auto end = message.find("] "); message.starts_with('[') && end != std::string::npos)
    message.erase(0, end + 2);
  if (!parse_error) return say(what, " is not JSON: ", printable(message));
  if (const auto end = message.find(": "); message.starts_with("parse error") && end != std::string::npos)
    message.erase(0, end + 2);

  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return say(what, " is not JSON: it is empty");
  const std::string_view before = text.substr(0, parse_error->byte > 0 ? parse_error->byte - 1 : 0);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t line_begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  const std::string place = say("line ", line, ", column ", before.size() - line_begin + 1);
  if (parse_error->byte > text.size())
    return say(what, " is not JSON: it breaks off at ", place, "; truncated? Write or copy the file again");
  return say(what, " is not JSON: ", place, ": ", printable(message));
}

json parse_strictly(std::string_view text, std::string_view what) {
  FormCheck check(text, what);
  json::sax_parse(text, &check);
  return json::parse(text);
}

nlohmann::ordered_json lines_of(const std::string& text) {
  nlohmann::ordered_json lines = nlohmann::ordered_json::array();
  for (std::size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1)
    lines.push_back(text.substr(begin, text.find('\n', begin) - begin));
  return lines;
}

StrictValue StrictValue::operator[](const char* key) const {
  require<DataError>(has(key), place(), " has no member '", key, "'");
  return StrictValue(value_->at(key), what_, path_.empty() ? key : path_ + "." + key);
}

void StrictValue::require_members(const std::vector<const char*>& known) const {
  require<DataError>(value_->is_object(), place(), " is not an object");
  for (const auto& [key, value] : value_->items()) {
    if (std::any_of(known.begin(), known.end(), [&name = key](const char* one) { return name == one; })) continue;
    throw DataError(say(place(), " has a member '", printable(key), "', which is not known (did you mean '",
                        nearest(key, {known.begin(), known.end()}), "'?); there are ", listed(known)));
  }
}

void StrictValue::require_version(const char* key, int version, std::string_view hint) const {
  require<DataError>(has(key), what_, " must say \"", key, "\": ", version, " in its one object", hint);
  (*this)[key].whole(version, version);
}

std::vector<StrictValue> StrictValue::list() const {
  require<DataError>(value_->is_array(), place(), " is not a list");
  std::vector<StrictValue> values;
  for (const json& value : *value_) values.push_back({value, what_, path_ + "[" + std::to_string(values.size()) + "]"});
  return values;
}

std::vector<std::pair<std::string, StrictValue>> StrictValue::members() const {
  require<DataError>(value_->is_object(), place(), " is not an object");
  std::vector<std::pair<std::string, StrictValue>> found;
  for (const auto& [key, value] : value_->items())
    found.emplace_back(key, StrictValue(value, what_, path_.empty() ? key : path_ + "." + key));
  return found;
}

std::string StrictValue::text() const {
  require<DataError>(value_->is_string(), place(), " is not text");
  return value_->get<std::string>();
}

bool StrictValue::boolean() const {
  require<DataError>(value_->is_boolean(), place(), " is neither true nor false");
  return value_->get<bool>();
}

std::string StrictValue::lines() const {
  std::string text;
  for (const StrictValue& line : list()) text += line.text() + "\n";
  return text;
}

double StrictValue::amount() const {
  require<DataError>(value_->is_number(), place(), " is not a number");
  const auto amount = value_->get<double>();
  require<DataError>(std::isfinite(amount) && amount >= 0, place(), " is ", amount, ": a finite number >= 0 is needed");
  return amount;
}

double StrictValue::share() const {
  const double share = amount();
  require<DataError>(share <= 1, place(), " is ", share, ": it is a part, from 0 to 1");
  return share;
}

std::int64_t StrictValue::whole(std::int64_t least, std::int64_t most) const {
  const bool fits = value_->is_number_integer() &&
                    (!value_->is_number_unsigned() || value_->get<std::uint64_t>() <= std::uint64_t{INT64_MAX});
  require<DataError>(fits, place(), " is not a whole number");
  const auto number = value_->get<std::int64_t>();
  require<DataError>(number >= least && number <= most, place(), " is ", number, ": ", least, " to ", most,
                     " is possible");
  return number;
}

std::uint64_t StrictValue::count() const {
  require<DataError>(value_->is_number_unsigned(), place(), " is not a whole number from 0 to 2^64 - 1");
  return value_->get<std::uint64_t>();
}

std::ostream& operator<<(std::ostream& out, const StrictValue::Place& place) {
  out << place.value.what_;
  if (!place.value.path_.empty()) out << "'s " << printable(place.value.path_);
  return out;
}

}  // namespace penstock
