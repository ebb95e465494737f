#include "penstock/base/json_text.h"

#include <algorithm>

#include "penstock/base/error.h"
#include "penstock/base/utf8.h"

namespace penstock {

namespace {

template <class Json>
std::string with_replacements(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

// Here and not where they are used, because the compiler takes seconds for each source file that writes or parses JSON.
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
  if (!parse_error) return say(what, " is no JSON: ", printable(message));
  if (const auto end = message.find(": "); message.starts_with("parse error") && end != std::string::npos)
    message.erase(0, end + 2);

  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return say(what, " is no JSON: it is empty");
  const std::string_view before = text.substr(0, parse_error->byte > 0 ? parse_error->byte - 1 : 0);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t line_begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  const std::string place = say("line ", line, ", column ", before.size() - line_begin + 1);
  if (parse_error->byte > text.size())
    return say(what, " is no JSON: it breaks off at ", place, "; truncated? Write or copy the file again");
  return say(what, " is no JSON: ", place, ": ", printable(message));
}

}  // namespace penstock
