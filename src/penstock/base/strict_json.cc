#include "penstock/base/strict_json.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "penstock/base/error.h"
#include "penstock/base/json_text.h"

namespace penstock {

using nlohmann::json;

json parse_strictly(std::string_view text, std::string_view what) {
  constexpr int deepest = 8;
  std::vector<std::set<std::string>> open;
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    require<DataError>(depth <= deepest, what, " nests deeper than ", deepest, " levels");
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key)
      require<DataError>(open.back().insert(value.get<std::string>()).second, what, " has the member '",
                         value.get<std::string>(), "' twice in one object");
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::exception& error) {
    throw DataError(complaint_about_json(text, what, error));
  }
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

void StrictValue::require_members(std::initializer_list<const char*> known) const {
  require<DataError>(value_->is_object(), place(), " is not an object");
  for (const auto& [key, value] : value_->items()) {
    if (std::any_of(known.begin(), known.end(), [&name = key](const char* one) { return name == one; })) continue;
    std::string names;
    for (const char* one : known) names += say(names.empty() ? "" : ", ", one);
    throw DataError(say(place(), " has a member '", key, "', which is not known; there are ", names));
  }
}

std::vector<StrictValue> StrictValue::list() const {
  require<DataError>(value_->is_array(), place(), " is not a list");
  std::vector<StrictValue> values;
  for (const json& value : *value_) values.push_back({value, what_, say(path_, "[", values.size(), "]")});
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

std::string StrictValue::place() const { return path_.empty() ? std::string(what_) : say(what_, "'s ", path_); }

}  // namespace penstock
